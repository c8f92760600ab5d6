"""The orders of pipelines in a V: each rank has one stage on the way down and one on the way back.

Orders may have ``None``: see `ringside.sim.training.pipeline.loops`.
"""

from collections import Counter, deque

from ringside.sim.training.pipeline.actions import Action, Kind, Placement
from ringside.sim.training.pipeline.loops import Slot

F, I, W, B = Kind.FORWARD, Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT, Kind.BACKWARD  # noqa: E741


class _Order:
    """A rank's order while it is written: each stage takes its micro-batches one after another."""

    def __init__(self, stages: tuple[int, ...]) -> None:
        self.slots: list[Slot] = []
        self.next: Counter[tuple[int, Kind]] = Counter()
        self.put_off: deque[tuple[int, int]] = deque()
        """Weights' gradients that wait, oldest first."""
        self._stages = stages

    def take(self, way: int, *kinds: Kind) -> None:
        """Run these kinds on the next micro-batch of the stage on the way down (0) or back (1)."""
        self.slots += [self._action(way, kind) for kind in kinds]

    def both(self, forward: int, backward: int) -> None:
        """Append a forward and a backward that may be fused."""
        parts = self._action(forward, F), self._action(backward, B)
        self.slots.append(Action(-1, Kind.OVERLAP, None, parts))

    def weight(self) -> None:
        """Make the oldest pending weights' gradient, if there is one."""
        if self.put_off:
            stage, number = self.put_off.popleft()
            self.slots.append(Action(stage, W, number))

    def _action(self, way: int, kind: Kind) -> Action:
        number = self.next[way, kind]
        for counted in (I, W, B) if kind is B else (kind, B) if kind is I else (kind,):
            self.next[way, counted] = number + 1
        if kind is I:
            self.put_off.append((self._stages[way], number))
        return Action(self._stages[way], kind, number)


def zbv(placement: Placement, micro_batches: int, rank: int) -> list[Slot]:
    """Order ZB-V, without a bubble if all three passes take equal time (Qi et al. 2024).

    With fewer than 2 ranks - 1 micro-batches there are gaps.
    """
    order = _Order(placement.of(rank))
    hops = placement.ranks - 1 - rank
    count = max(2 * placement.ranks - 1, micro_batches)
    for _ in range(2 * hops + 1):
        order.take(0, F)
    for _ in range(rank):
        order.take(1, F)
        order.take(0, F)
    for _ in range(hops + 1):
        order.take(1, F, I, W)
    while order.next[1, F] < count:
        if order.next[0, F] < count:
            order.take(0, F)
        order.take(0, I, W)
        order.take(1, F, I, W)
    for _ in range(rank):
        order.take(0, I)
        order.take(1, I)
    for _ in range(hops + 1):
        order.take(0, I, W)
    for way in (1, 0):
        while order.next[way, W] < count:
            order.take(way, W)
    real = [one if isinstance(one, Action) and (one.micro_batch or 0) < micro_batches else None
            for one in order.slots]  # fmt: skip
    return [*[None] * rank, *real]


def dualpipev(placement: Placement, micro_batches: int, rank: int) -> list[Slot]:
    """Order DualPipe on a V: a forward with a backward of another micro-batch (DeepSeek-AI 2024)."""
    order = _Order(placement.of(rank))
    hops = placement.ranks - 1 - rank
    for _ in range(2 * hops):
        order.take(0, F)
    for _ in range(rank + 1):
        order.take(0, F)
        order.take(1, F)
    for _ in range(hops):
        order.take(1, I)
        order.weight()
        order.take(1, F)
    for number in range(micro_batches - 2 * placement.ranks + rank + 1):
        if number or hops:
            order.both(0, 1)
        else:
            order.take(0, F)
            order.take(1, B)
        order.both(1, 0)
    for _ in range(hops):
        order.take(1, B)
        order.both(1, 0)
    # from the middle of the remaining micro-batches on, weights' gradients are postponed
    for number in range(2 * (rank + 1)):
        order.take(1 - number % 2, I if number > rank else B)
    for _ in range(hops):
        order.weight()
        order.take(0, I)
    for _ in range(rank + 1):
        order.weight()
    return order.slots
