"""FSDP2 of a mixture of experts: experts shard over ranks with the same ones, all else over all ranks.

As in torchtitan, experts are units of their own, on another mesh than the layer around them.
"""

from ringside.sim.training.fsdp import FullyShard
from ringside.sim.training.sharing import Apart


class ShardedApart(Apart):
    """Two `FullyShard` of the same layers, which a pipeline commands as one."""

    def __init__(self, dense: FullyShard, experts: FullyShard) -> None:
        super().__init__(dense, experts)
        self._both = dense, experts

    def unshard(self) -> None:
        """Begin to gather all units."""
        for one in self._both:
            one.unshard()

    def reshard(self) -> None:
        """Free all units' gathered parameters."""
        for one in self._both:
            one.reshard()

    def reduce(self) -> None:
        """Sum the gradients of all micro-batches."""
        for one in self._both:
            one.reduce()

    def update(self, seconds: float) -> None:
        """Run the optimizer's step over both, after which gradients are freed."""
        dense, experts = self._both
        dense.update(seconds)
        experts.update(0.0)
