"""One rank's part of a model's layer, and the work of one micro-batch in it.

A layer as it stands on one rank: its parameters and its work after tensor, context and expert parallelism,
before data parallelism shards it. A model defines its layers, a schedule their passes, and
`ringside.sim.training.stage` the gathers and reductions around them.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.workload.workload import Tensor


class Kernels(NamedTuple):
    """Kernels that take ``seconds`` while nothing else uses the rank's units."""

    seconds: float


class Exchange(NamedTuple):
    """A collective along dimensions of the mesh (`ringside.sim.training.mesh`), which the pass waits for.

    If it ``overlaps``, the next work runs concurrently and only later work waits; so do several in a row.
    """

    dimensions: tuple[str, ...]
    collective: Collective
    overlaps: bool = False


Pass = tuple[Kernels | Exchange, ...]
"""A micro-batch's operations in a layer, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLayer:
    """One layer on one rank.

    Backward is ``recomputed``, then ``backward``. Schedules that split it have ``recomputed`` and
    ``input_gradient`` first, ``weight_gradient`` later. ``kept_nbytes`` of activations are held from forward
    to the end of backward, ``recomputed_nbytes`` more during backward, ``exchanged_nbytes`` of other ranks'
    activations during either pass. ``wrapped`` says that FSDP wraps it as a unit of its own; the parameters
    of all other layers belong to the root. ``experts`` are parameters that are sharded over expert-parallel
    ranks. ``arrival`` lists groups of parameters whose gradients backward finishes together, in that order,
    each with the share of backward's work done since the group before; parameters in no group come with the
    last, in reverse order of definition.
    """

    name: str
    parameters: tuple[Tensor, ...] = ()
    forward: Pass = ()
    backward: Pass = ()
    input_gradient: Pass = ()
    weight_gradient: Pass = ()
    recomputed: Pass = ()
    kept_nbytes: int = 0
    recomputed_nbytes: int = 0
    exchanged_nbytes: int = 0
    wrapped: bool = True
    experts: tuple[Tensor, ...] = ()
    arrival: tuple[tuple[tuple[str, ...], float], ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of its parameters, including experts."""
        return sum(tensor.nbytes for tensor in (*self.parameters, *self.experts))

    @property
    def expert_nbytes(self) -> int:
        """Bytes of its experts' parameters."""
        return sum(tensor.nbytes for tensor in self.experts)

    @property
    def undivided(self) -> "RankLayer":
        """Return the layer with its experts as ordinary parameters, as each rank has all of them."""
        return replace(self, parameters=(*self.parameters, *self.experts), experts=())
