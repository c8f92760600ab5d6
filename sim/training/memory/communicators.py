"""NCCL's communicators of a training, and the memory of a GPU that they hold."""

from collections.abc import Collection, Iterator, Mapping

from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.library import Library
from ringside.sim.libraries.nccl.buffers import buffers_nbytes
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.layout import Layout
from ringside.sim.training.mesh import DATA, DIMENSIONS, Mesh
from ringside.sim.workload.devices import MIB

UNKNOWN_COMMUNICATOR = 688 * MIB
"""Bytes of a communicator of another library on GPUs, or on a machine without NCCL's graphs: NCCL's on four
A100 (NVIDIA/nccl#964)."""

REDUCTIONS = ("all_reduce", "all_gather", "reduce_scatter")

EXCHANGES = {"ulysses": ("all_to_all",), "all-gather": REDUCTIONS}
"""What context-parallel ranks exchange by other methods than around a ring."""


def communicator_nbytes(library: Library, kinds: Collection[str] = REDUCTIONS) -> int:
    """Return the bytes that a GPU holds for a communicator of this library."""
    if library.ranks == 1 or LIBRARIES[library.name].on_cpu:
        return 0
    return sum(buffers_nbytes(library.comm, kinds).values()) if library.comm else UNKNOWN_COMMUNICATOR


def communicators(mesh: Mesh, layout: Layout) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the communicators of a rank: the dimensions along which its ranks differ, and what it carries."""
    yield ("tensor",), REDUCTIONS
    if mesh.shard > 1 and mesh.replicate > 1:
        yield ("context", "shard"), REDUCTIONS
        yield ("replicate",), REDUCTIONS
    else:
        yield DATA, REDUCTIONS
    yield ("context",), EXCHANGES.get(layout.cp_method, ("sendrecv",))
    if mesh.separates_experts:
        if mesh.expert_tensor != mesh.tensor:
            yield ("expert_tensor",), REDUCTIONS
        yield ("expert",), REDUCTIONS if layout.dispatcher == "allgather" else ("all_to_all",)
        yield ("expert_data",), REDUCTIONS
    yield ("pipeline",), ("sendrecv",)


def communicators_nbytes(mesh: Mesh, layout: Layout, libraries: Libraries) -> Mapping[str, int]:
    """Return the bytes of rank 0's communicators, by their dimensions."""
    nbytes: dict[str, int] = {}
    for dimensions, kinds in communicators(mesh, layout):
        group = mesh.together(0, *dimensions)
        if len(group) > 1:
            name = " ".join(one for one in dimensions if one not in DIMENSIONS or mesh.degree(one) > 1)
            nbytes[name] = nbytes.get(name, 0) + communicator_nbytes(libraries.of(group), kinds)
    return nbytes
