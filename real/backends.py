"""The backends of torch.distributed that measurements run over."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend, by torch's name.

    ``on_gpu``: each rank has a GPU. ``on_sockets``: ranks talk over the host's sockets, emulated networks
    too. ``by_mpirun``: mpirun starts its ranks and not torchrun. ``release`` is the entry of a fingerprint
    that says which release ran.
    """

    name: str
    release: str
    on_gpu: bool = False
    on_sockets: bool = False
    by_mpirun: bool = False


BACKENDS = {
    one.name: one
    for one in (
        Backend("gloo", release="torch", on_sockets=True),
        Backend("nccl", release="nccl", on_gpu=True),
        Backend("mpi", release="mpi", by_mpirun=True),
    )
}

UNDER_TORCHRUN = [name for name, one in BACKENDS.items() if not one.by_mpirun]
"""What trains, and runs programs."""

ON_GPU = [name for name, one in BACKENDS.items() if one.on_gpu]
ON_SOCKETS = [name for name, one in BACKENDS.items() if one.on_sockets]
