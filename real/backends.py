"""The backends of torch.distributed that measurements run over, by torch's names."""

BACKENDS = ("gloo", "nccl", "mpi")

UNDER_TORCHRUN = ("gloo", "nccl")
"""Those that train and run programs; mpirun starts the ranks of the others."""

ON_GPU = ("nccl",)
"""Each rank has a GPU."""

ON_SOCKETS = ("gloo",)
"""Ranks talk over the host's sockets, which an emulated network carries too."""
