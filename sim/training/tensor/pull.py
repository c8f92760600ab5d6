"""The rate at which tensor-parallel ranks read each other's memory."""

from ringside.sim.collective import Collective
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.tensor.cut import Pull
from ringside.sim.workload.devices import Device

_NBYTES = 2**28
"""Bytes of a gather whose latency is negligible."""


def pull_of(libraries: Libraries, ranks: tuple[int, ...], gpu: Device) -> Pull:
    """Return copies at the pace at which large all-gathers of the library deliver neighbours' bytes."""
    library, gather = libraries.of(ranks), Collective("all_gather", len(ranks), _NBYTES)
    seconds = library.time(gather, library.choose(gather)).time_s
    rate = _NBYTES * (len(ranks) - 1) / len(ranks) / seconds
    return Pull(rate, multiprocessors=gpu.multiprocessors)
