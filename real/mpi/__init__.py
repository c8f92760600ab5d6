"""Real collectives over MPI: mpirun starts the ranks, mpi4py sends."""
