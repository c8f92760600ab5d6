"""Parameters of lower precision, updated in float32: an optimizer's copies of its part."""

from ringside.sim.collective import ITEMSIZE
from ringside.sim.training.fsdp.units import BUFFERS
from ringside.sim.training.memory import Optimizer
from ringside.sim.training.rank import RankList
from ringside.sim.training.zero.policy import ZeroPolicy

MASTER = "float32"
"""The type of the optimizer's copies, and of its states."""


def state_nbytes(optimizer: Optimizer, elements: int) -> int:
    """Return the bytes of a copy of ``elements`` parameters and of the optimizer's states."""
    return (1 + optimizer.states) * elements * ITEMSIZE[MASTER]


def step_on(rank: RankList, policy: ZeroPolicy, elements: int, seconds: float) -> None:
    """Cast the gradients of ``elements`` parameters, update in ``seconds``, cast the parameters back."""
    cast = policy.seconds(elements * (policy.itemsize + ITEMSIZE[MASTER]))
    rank.take(BUFFERS, elements * ITEMSIZE[MASTER])
    rank.compute(cast, "gradients of the own part", "copy")
    rank.compute(seconds, "optimizer", "optimizer")
    rank.compute(cast, "parameters of the own part", "copy")
    rank.give(BUFFERS, elements * ITEMSIZE[MASTER])
