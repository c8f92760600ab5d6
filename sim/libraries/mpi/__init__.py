"""MPI: the algorithms of its collectives, its messages' protocols, Open MPI's choice among them."""
