"""Optimizers by the state that they keep and the bytes that a step of them moves."""

from dataclasses import dataclass

from ringside.topologies.names import one_of


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer by its memory: ``states`` numbers per parameter, of the parameter's dtype.

    ``again`` is the number of further passes of a fused step over the parameters' bytes, beyond reading
    gradients and reading and writing parameters and state.
    """

    name: str
    states: int
    again: int = 0

    def seconds(self, nbytes: int, memory_bandwidth: float) -> float:
        """Return the seconds of one fused step on ``nbytes`` bytes of parameters."""
        return nbytes * (1 + 2 * (1 + self.states) + self.again) / memory_bandwidth


OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer("sgd", 0),
        Optimizer("momentum", 1),
        Optimizer("adam", 2),
        Optimizer("lamb", 2, again=6),
    )
}
"""torch.optim's SGD without and with momentum, Adam or AdamW, and apex's FusedLAMB: it reads gradients for
their norm first, writes updates, reads them and the parameters for two norms, and both again to step."""


def find_optimizer(name: str) -> Optimizer:
    """Return the optimizer of that name."""
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; write {one_of(OPTIMIZERS, name)}")
    return OPTIMIZERS[name]
