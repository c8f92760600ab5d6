"""Collectives for real over MPI: mpirun starts the ranks, mpi4py sends for them."""
