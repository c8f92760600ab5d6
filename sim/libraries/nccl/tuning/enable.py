"""What NCCL lets itself choose from: hardware, data type, operation and the user's pins decide."""

from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.graph.graph import PathClass
from sim.libraries.nccl.names import ALGORITHMS_OF, PROTOCOLS_OF

MAX_COLLNET_GPUS = 8
MAX_NVLS_GPUS = 32

_SCALED = frozenset({"avg", "mulsum"})
"""Reductions that multiply or divide as well: ncclAvg and pre-multiplied sums (nccl-tests' ``mulsum``)."""

_NVLS_REDOPS = {
    **dict.fromkeys(
        ("int32", "uint32", "int64", "uint64", "float16", "bfloat16"), frozenset({"sum", "min", "max"})
    ),
    **dict.fromkeys(("float32", "float64"), frozenset({"sum"})),
}
"""What NVSwitch can reduce, by torch's name of the type."""


def enabled(comm: Communicator, kind: str, algorithm: str, protocol: str, dtype: str, redop: str) -> bool:
    """Whether NCCL considers this pair (src/graph/tuning.cc and src/enqueue.cc, v2.30.7)."""
    if algorithm not in ALGORITHMS_OF[kind] or protocol not in PROTOCOLS_OF[algorithm]:
        return False
    if algorithm not in comm.constants.algorithms:
        return False
    pins = comm.settings.pins
    if algorithm not in pins.algorithms(kind):
        return False
    pinned = pins.protocols(kind)
    if pinned is not None and protocol not in pinned:
        return False
    if protocol == "ll128" and pinned is None and not _ll128_is_safe(comm, algorithm):
        return False
    match algorithm:
        case "pat":
            return _pat(comm, kind, redop)
        case "nvls" | "nvls_tree":
            return _nvls(comm, kind, algorithm, dtype, redop)
        case "collnet_direct" | "collnet_chain":
            return _collnet(comm, kind, algorithm)
        case _:
            return True


def _ll128_is_safe(comm: Communicator, algorithm: str) -> bool:
    """Whether every path keeps the order of 128-byte stores, which LL128 rests on."""
    graph, capability = comm.graph(algorithm), comm.system.compute_capability
    worst = PathClass.PXN if capability >= 90 else PathClass.PXB
    known = comm.constants.ll128_capabilities
    return (
        graph is not None
        and (capability in known if known else capability >= 70)
        and graph.type_intra <= (PathClass.NVB if comm.constants.ll128_over_nvb else PathClass.NVL)
        and graph.type_inter <= worst
    )


def _pat(comm: Communicator, kind: str, redop: str) -> bool:
    if comm.system.compute_capability < 60 or (kind == "reduce_scatter" and redop in _SCALED):
        return False
    return comm.gpus == 1 if comm.settings.pat is None else comm.settings.pat


def _nvls(comm: Communicator, kind: str, algorithm: str, dtype: str, redop: str) -> bool:
    if kind != "all_gather" and redop not in _NVLS_REDOPS.get(dtype, frozenset()):
        return False
    if kind != "all_reduce" and comm.gpus > MAX_NVLS_GPUS:
        return False
    if algorithm == "nvls_tree":
        return comm.nodes > 1
    return comm.nodes == 1 or (comm.collnet and _heads_suffice(comm, kind))


def _collnet(comm: Communicator, kind: str, algorithm: str) -> bool:
    if not comm.collnet or comm.gpus > MAX_COLLNET_GPUS:
        return False
    return algorithm == "collnet_chain" or (comm.system.nvswitch and _heads_suffice(comm, kind))


def _heads_suffice(comm: Communicator, kind: str) -> bool:
    """Gathering and scattering through the network need a NIC for every GPU."""
    return kind == "all_reduce" or comm.gpus <= comm.collnet_heads
