"""The ranks' time and memory by a pipeline's tables alone.

Messages take time and block no rank.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ringside.sim.training.layout import Layout
from ringside.sim.training.pipeline.actions import (
    BACKWARDS,
    COMPUTES,
    ENDS,
    Action,
    Kind,
    Placement,
    Table,
    singles,
)


class Moment(NamedTuple):
    """A backward of one of a rank's own stages, and the state at its begin, by stage.

    ``kept`` micro-batches wait for the end of their backward; ``halved`` of them only lack
    their weights' gradients; ``summed`` says that gradients of an earlier one are held, and others to come.
    ``last`` is the stage's last micro-batch, and ``whole`` says that both gradients are made at once.
    """

    stage: int
    kept: tuple[int, ...]
    halved: tuple[int, ...]
    summed: tuple[bool, ...]
    last: bool
    whole: bool = True


def order_of(layout: Layout) -> Layout:
    """Return the part of a layout that its pipeline's order depends on."""
    return Layout(
        pp=layout.pp, schedule=layout.schedule, virtual=layout.virtual, tables=layout.tables,
        microbatch_group=layout.microbatch_group,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def moments(order: Layout, micro_batches: int) -> tuple[tuple[int, frozenset[Moment]], ...]:
    """Return the moments of the first and the last rank of a pipeline, by their places."""
    if order.pp == 1:
        first, later = Moment(0, (1,), (0,), (False,), micro_batches == 1), range(1, min(micro_batches, 3))
        others = (Moment(0, (1,), (0,), (True,), number == micro_batches - 1) for number in later)
        return ((0, frozenset((first, *others))),)
    tables = order.actions(micro_batches)
    places = sorted({0, order.pp - 1})
    return tuple(
        (place, frozenset(_moments(tables[place], order.placement.of(place), micro_batches)))
        for place in places
    )


def ends_of(
    tables: Sequence[Table],
    placement: Placement,
    seconds: Callable[[Action], float],
    hop_s: Sequence[float],
) -> list[float]:
    """Return when each rank has ended its last action.

    An action begins when its rank is free and its input has arrived: ``hop_s`` entry s is a message's time
    between stages s and s + 1.
    """
    lists = [[one for one in singles(table) if one.kind in COMPUTES] for table in tables]
    done: dict[tuple[int, bool, int | None], float] = {}
    blocked: dict[tuple[int, bool, int | None], int] = {}
    places, now = [0] * len(lists), [0.0] * len(lists)
    ready = list(range(len(lists)))
    while ready:
        rank = ready.pop()
        for action in lists[rank][places[rank] :]:
            needed = _input(action, placement)
            if needed is not None and needed not in done:
                blocked[needed] = rank
                break
            hop = 0.0
            if needed is not None and needed[0] != action.stage:
                low = min(needed[0], action.stage)
                hop = hop_s[low] if placement.rank(needed[0]) != rank else 0.0
            begin = now[rank] if needed is None else max(now[rank], done[needed] + hop)
            now[rank] = begin + seconds(action)
            places[rank] += 1
            if action.kind is not Kind.WEIGHT_GRADIENT:
                ended = action.stage, action.kind is Kind.FORWARD, action.micro_batch
                done[ended] = now[rank]
                if ended in blocked:
                    ready.append(blocked.pop(ended))
    return now


def _input(action: Action, placement: Placement) -> tuple[int, bool, int | None] | None:
    """Return the pass that makes an action's input: its stage, whether it is forward, its micro-batch."""
    stage, kind, number, _ = action
    if kind is Kind.FORWARD:
        return (stage - 1, True, number) if stage else None
    if kind is Kind.WEIGHT_GRADIENT:
        return None
    return (stage, True, number) if stage == placement.stages - 1 else (stage + 1, False, number)


def _moments(table: Table, own: Sequence[int], micro_batches: int) -> Iterator[Moment]:
    kept, halved, ended = [0] * len(own), [0] * len(own), [0] * len(own)
    for stage, kind, *_ in singles(table):
        number = own.index(stage)
        if kind is Kind.FORWARD:
            kept[number] += 1
        if kind is Kind.INPUT_GRADIENT:
            halved[number] += 1
        if kind in BACKWARDS:
            summed = tuple(0 < count < micro_batches for count in ended)
            last = ended[number] == micro_batches - 1
            yield Moment(number, tuple(kept), tuple(halved), summed, last, kind is Kind.BACKWARD)
        if kind in ENDS:
            kept[number] -= 1
            ended[number] += 1
        if kind is Kind.WEIGHT_GRADIENT:
            halved[number] -= 1
