"""The attachment of a group's ranks: NVLink inside a domain, network cards between domains."""

from dataclasses import dataclass

from ringside.sim.libraries.library import Library
from ringside.sim.libraries.nccl.graph.system import nics_used, nvlink_in_datasheet
from ringside.topologies.hardware import GPUS

BLACKWELL = 100
"""The first compute capability of the generation after Hopper."""

SLOT = 0.75
"""NCCL's rate of a slot over its signalling rate, which only bounds cards."""


@dataclass(frozen=True, slots=True)
class ExpertPorts:
    """``ranks`` on ``nodes`` NVLink domains, equally many on each; rates are bytes/s of one rank.

    ``nvlink`` is a data sheet's, in one direction; ``network`` the rank's share of its domain's cards.
    """

    ranks: int
    nodes: int
    nvlink: float
    network: float
    multiprocessors: int
    capability: int
    cpu: str

    @property
    def is_blackwell(self) -> bool:
        """Whether GPUs are of Blackwell's generation; older ones are treated as Hopper's."""
        return self.capability >= BLACKWELL


def ports_of(library: Library) -> ExpertPorts:
    """Return the ports of a library's ranks; raise ValueError without NVIDIA's GPUs and their NVLink."""
    comm = library.comm
    if comm is None:
        raise ValueError(
            "experts are exchanged by two ranks or more on machines with NVIDIA GPUs; write for example "
            "`cluster` dgx-h100:2"
        )
    system = comm.system
    if not system.nvlink:
        raise ValueError(f"GPUs of {system.name} have no NVLink, over which these libraries exchange tokens")
    return ExpertPorts(
        ranks=comm.ranks,
        nodes=comm.nodes,
        nvlink=nvlink_in_datasheet(system.nvlink, system.compute_capability),
        network=min(system.nic, system.pcie / SLOT) * nics_used(system, comm.gpus) / comm.gpus,
        multiprocessors=multiprocessors(system.compute_capability),
        capability=system.compute_capability,
        cpu=system.cpu,
    )


def multiprocessors(capability: int) -> int:
    """Return a GPU's number by its compute capability: the usual one's, or that of the nearest older GPU."""
    known = {gpu.compute_capability: gpu.multiprocessors for gpu in GPUS.values() if gpu.maker == "nvidia"}
    known |= {gpu.compute_capability: gpu.multiprocessors for gpu in GPUS.values() if gpu.usual}
    return known[max((one for one in known if one <= capability), default=min(known))]
