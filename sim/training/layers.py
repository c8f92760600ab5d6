"""What one rank has of a model's layer, and what one micro-batch does with it.

A layer as it stands on one rank: its parameters and its work are what tensor, context and expert
parallelism leave of it there; data parallelism has not dealt it out yet. How a model becomes such layers is
the model's business, when and how often they are passed through is the schedule's, and what is gathered and
reduced around them `ringside.sim.training.sharing`'s.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.workload.workload import Tensor


class Work(NamedTuple):
    """Computing, ``seconds`` long while nothing else wants the rank's units."""

    seconds: float


class Exchange(NamedTuple):
    """A collective along dimensions of the mesh (`ringside.sim.training.mesh`), which the pass waits for.

    Where it ``overlaps``, the work that follows goes on beside it and only what comes after that waits; so
    it does with several in a row.
    """

    dimensions: tuple[str, ...]
    collective: Collective
    overlaps: bool = False


Pass = tuple[Work | Exchange, ...]
"""What a micro-batch does in a layer, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLayer:
    """One layer on one rank.

    Backward is ``recomputed``, then ``backward``. Schedules that split it have ``recomputed`` and
    ``input_gradient`` first, ``weight_gradient`` later. ``kept_nbytes`` of activations stay from forward
    to the end of backward, ``recomputed_nbytes`` more are there while backward runs, ``exchanged_nbytes``
    of others' activations in either pass. ``wrapped`` says that FSDP wraps it as a unit of its own; the
    parameters of all others belong to the root. ``experts`` are parameters that expert-parallel ranks have
    dealt out, of which each has its own. ``arrival`` are the names of parameters whose gradients backward
    finishes together, in that order, each time with the share of its work that it has done since the time
    before; those that nobody names come with the last, the last defined first.
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
        """Bytes of its parameters, those of experts too."""
        return sum(tensor.nbytes for tensor in (*self.parameters, *self.experts))

    @property
    def expert_nbytes(self) -> int:
        """Bytes of its experts' parameters."""
        return sum(tensor.nbytes for tensor in self.experts)

    @property
    def undivided(self) -> "RankLayer":
        """The layer where each rank has all experts: they are parameters as all others."""
        return replace(self, parameters=(*self.parameters, *self.experts), experts=())
