"""The host's own work in a training step, from real steps in which communication moves nothing.

Such a step consists of the layers' sleeps and of what the host does around its calls: hooks, copies,
dispatch.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ringside.real.training.record import MeasuredRankStep, Step
from ringside.sim.program import Action, Call, Compute, Operation, Program, Wait
from ringside.sim.training.mesh import Communicators
from ringside.sim.training.stage import RankList

Seconds = tuple[float, ...]
"""A rank's work before each call and each wait for one, and after the last."""


class HostedRank(RankList):
    """A rank's operations, with the host's work before each call and each wait for one."""

    def __init__(self, rank: int, communicators: Communicators, work: Seconds, *, blocks: bool) -> None:
        super().__init__(rank, communicators, blocks=blocks)
        self._work = iter(work)

    def post(self, action: Action, name: str, kind: str, lane: str | None, after: tuple[int, ...]) -> int:
        """Append an operation, after the host's work for it; return its place."""
        if isinstance(action, Call) or _waits(action, after, self.operations):
            self.work()
            after = (*after, *self.last())
        return super().post(action, name, kind, lane, after)

    def work(self) -> None:
        """Do the host's work before the next call or wait, or after the last."""
        self.compute(next(self._work), "the host's own work", "host")


def host_work(program: Program, steps: Sequence[Step]) -> tuple[Seconds, ...]:
    """Return each rank's work in seconds, of the median step."""
    return tuple(
        _work(program.operations(rank), [step[rank] for step in steps]) for rank in range(program.ranks)
    )


def _work(operations: Sequence[Operation], steps: Sequence[MeasuredRankStep]) -> Seconds:
    lags = [list(_lags(operations, step)) for step in steps]
    longest = np.maximum.accumulate([0.0, *np.median(lags, axis=0)])
    return tuple(np.diff(longest).tolist())


def _lags(operations: Sequence[Operation], step: MeasuredRankStep) -> Iterator[float]:
    """Yield how far each call, each wait for one and the end are behind the sleeps before them."""
    slept = step.begin_s
    numbers: dict[int, int] = {}
    for place, operation in enumerate(operations):
        action, after = operation.action, operation.after
        if isinstance(action, Compute):
            slept += action.seconds
        elif isinstance(action, Call):
            numbers[place] = len(numbers)
            yield step.said[numbers[place]].begin_s - slept
        elif _waits(action, after, operations):
            yield step.said[numbers[after[0]]].end_s - slept
    yield step.end_s - slept


def _waits(action: Action, after: Sequence[int], operations: Sequence[Operation]) -> bool:
    return isinstance(action, Wait) and isinstance(operations[after[0]].action, Call)
