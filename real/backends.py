"""The backends of torch.distributed that measurements run over, by torch's names."""

BACKENDS = ("gloo", "nccl", "mpi")

UNDER_TORCHRUN = ("gloo", "nccl")
"""Backends that can train and run programs; mpirun starts the ranks of the others."""

ON_GPU = ("nccl",)
"""Backends whose ranks each have a GPU."""

ON_SOCKETS = ("gloo",)
"""Ranks talk over the host's sockets, which an emulated network carries too."""
