"""Optimizers by the state that they keep and the bytes that a step of them moves."""

from dataclasses import dataclass

from ringside.sim.training.strategies import MEGATRON
from ringside.topologies.names import one_of


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer by its memory: ``states`` numbers per parameter, of the parameter's dtype.

    ``again`` is the number of further passes of a fused step over the parameters' bytes, beyond reading
    gradients and reading and writing parameters and state. ``of_matrices`` are the states of matrices that
    neither embed tokens nor make logits, None if they are no others. ``uses`` is the number of times that
    torch's foreach step reads a gradient. ``strategies`` are those that it is modelled with, none for all.
    """

    name: str
    states: int
    again: int = 0
    of_matrices: int | None = None
    uses: int = 1
    strategies: tuple[str, ...] = ()

    def kept(self, elements: int, matrices: int) -> int:
        """Return the states of ``elements`` parameters, ``matrices`` of them elements of matrices."""
        fewer = 0 if self.of_matrices is None else self.states - self.of_matrices
        return self.states * elements - fewer * matrices

    def seconds(self, nbytes: int, memory_bandwidth: float) -> float:
        """Return the seconds of one fused step on ``nbytes`` bytes of parameters."""
        return nbytes * (1 + 2 * (1 + self.states) + self.again) / memory_bandwidth


OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer("sgd", 0),
        Optimizer("momentum", 1),
        Optimizer("adam", 2, uses=3),
        Optimizer("lamb", 2, again=6),
        Optimizer("muon", 2, of_matrices=1, strategies=MEGATRON),
    )
}
"""torch.optim's SGD without and with momentum, Adam or AdamW, and apex's FusedLAMB: it reads gradients for
their norm first, writes updates, reads them and the parameters for two norms, and both again to step.
Megatron-LM's Muon keeps the momentum of matrices, and of all else Adam's states
(megatron/core/optimizer/muon.py); its own products are not counted."""


def find_optimizer(name: str, strategy: str | None = None) -> Optimizer:
    """Return the optimizer of that name; raise ValueError for one that a given strategy does not have."""
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; write {one_of(OPTIMIZERS, name)}")
    optimizer = OPTIMIZERS[name]
    if strategy and optimizer.strategies and strategy not in optimizer.strategies:
        raise ValueError(
            f"`optimizer` {name} is not modelled with `strategy` {strategy}; write `strategy` "
            f"{' or '.join(optimizer.strategies)}"
        )
    return optimizer
