"""The orders of pipelines whose stages are placed in a loop, as rules for each rank.

A rank's order has ``None`` where torch leaves a time step empty, so that steps of all ranks line up if each
action takes one. Runtimes skip these.
"""

from collections.abc import Iterator, Sequence
from math import ceil

from ringside.sim.training.pipeline.actions import Action, Kind, Placement

Slot = Action | None
Passes = Sequence[tuple[int, int]]
"""Stages and micro-batches in a rank's order."""


def gpipe(placement: Placement, micro_batches: int, rank: int) -> list[Slot]:
    """Order all forwards, then all backwards, with the same order of micro-batches (Huang et al. 2018)."""
    idle = [None] * (3 * (placement.ranks - 1 - rank))
    forwards = [Action(rank, Kind.FORWARD, number) for number in range(micro_batches)]
    backwards = [Action(rank, Kind.BACKWARD, number) for number in range(micro_batches)]
    return [*[None] * rank, *forwards, *idle, *backwards]


def looped_bfs(placement: Placement, micro_batches: int, rank: int) -> list[Slot]:
    """Order stage after stage, all micro-batches through each, then back (Lamy-Poirier 2023)."""
    passes = [(stage, number) for stage in placement.of(rank) for number in range(micro_batches)]
    idle = [None] * (2 * (placement.ranks - 1 - rank))
    forwards = [Action(stage, Kind.FORWARD, number) for stage, number in passes]
    backwards = [Action(stage, Kind.BACKWARD, number) for stage, number in reversed(passes)]
    return [*[None] * rank, *forwards, *idle, *backwards]


def one_forward_one_backward(placement: Placement, micro_batches: int, rank: int) -> list[Slot]:
    """Order just enough forwards ahead to keep all ranks busy, then 1F1B (Narayanan et al. 2019).

    With fewer micro-batches than ranks the first ranks run all forwards ahead, as in Megatron-LM
    (forward_backward_pipelining_without_interleaving); torch's class refuses this case.
    """
    passes = [(rank, number) for number in range(micro_batches)]
    return [*_alternate(passes, passes, placement.ranks - 1 - rank)]


def interleaved(placement: Placement, group: int, micro_batches: int, rank: int) -> list[Slot]:
    """Order 1F1B with several stages per rank, visited by groups of micro-batches (Narayanan et al. 2021)."""
    hops = placement.ranks - 1 - rank
    forwards, backwards = _passes(placement, group, micro_batches, rank)
    ahead = min((placement.stages_a_rank - 1) * group + 2 * hops, len(forwards))
    slots: list[Slot] = [None] * rank
    wait = placement.stages + 2 * hops - ahead - rank
    for number, action in enumerate(_alternate(forwards, backwards, ahead)):
        if ahead and number == ahead:
            slots += [None] * wait
        if number >= 2 * len(forwards) - ahead:
            slots.append(None)
        slots.append(action)
    return slots


def zero_bubble(
    placement: Placement,
    group: int,
    micro_batches: int,
    rank: int,
    *,
    lead: float = 1,
    put_off: float = 1,
) -> list[Slot]:
    """Order 1F1B with weights' gradients postponed to fill the bubble (Qi et al. 2024).

    A rank runs ``lead`` forwards ahead per hop to the last rank, and postpones the weights' gradients of
    ``put_off`` micro-batches per hop from the first: ZB-H1 has 1 of both.
    """
    hops = placement.ranks - 1 - rank
    forwards, backwards = _passes(placement, group, micro_batches, rank)
    ahead = min((placement.stages_a_rank - 1) * group + ceil(lead * hops), len(forwards))
    wait = ceil(put_off * rank)
    slots: list[Slot] = [None] * rank
    done = 0
    for number, action in enumerate(_alternate(forwards, backwards, ahead, Kind.INPUT_GRADIENT)):
        if ahead and number == ahead:
            slots += [None] * hops
        slots.append(action)
        if action.kind is Kind.INPUT_GRADIENT:
            if wait:
                wait -= 1
            else:
                slots.append(_weight(*backwards[done]))
                done += 1
    return [*slots, *[_weight(*one) for one in backwards[done:]]]


def zb_h2(placement: Placement, micro_batches: int, rank: int) -> list[Slot]:
    """Order ZB-H2, which fills the bubble if all passes take equal time, and keeps twice 1F1B's memory."""
    return zero_bubble(placement, micro_batches, micro_batches, rank, lead=2, put_off=2)


def in_step(orders: Sequence[Sequence[Slot]]) -> tuple[tuple[Slot, ...], ...]:
    """Yield orders with an empty step before each forward whose input is not ready."""
    made: set[Action] = set()
    left = [list(reversed(order)) for order in orders]
    slots: list[list[Slot]] = [[] for _ in orders]
    while any(left):
        now: set[Action] = set()
        for rest, own in zip(left, slots, strict=True):
            if not rest:
                continue
            action = rest[-1]
            if action and action.kind is Kind.FORWARD:
                needed = action._replace(stage=action.stage - 1)
                if action.stage and needed not in made:
                    own.append(None)
                    continue
                now.add(action)
            own.append(rest.pop())
        made |= now
    return tuple(map(tuple, slots))


def _passes(placement: Placement, group: int, micro_batches: int, rank: int) -> tuple[Passes, Passes]:
    """Order forwards and backwards: a group of micro-batches through a stage, then through the next."""
    own = placement.of(rank)

    def through(stages: Sequence[int]) -> Passes:
        return [
            (stage, number)
            for first in range(0, micro_batches, group)
            for stage in stages
            for number in range(first, min(first + group, micro_batches))
        ]

    return through(own), through(own[::-1])


def _alternate(
    forwards: Passes, backwards: Passes, ahead: int, kind: Kind = Kind.BACKWARD
) -> Iterator[Action]:
    """Order ``ahead`` forwards, then one forward and one backward in turn, then the backwards left."""
    for stage, number in forwards[:ahead]:
        yield Action(stage, Kind.FORWARD, number)
    for place, (stage, number) in enumerate(backwards):
        if ahead + place < len(forwards):
            ahead_stage, ahead_number = forwards[ahead + place]
            yield Action(ahead_stage, Kind.FORWARD, ahead_number)
        yield Action(stage, kind, number)


def _weight(stage: int, micro_batch: int) -> Action:
    return Action(stage, Kind.WEIGHT_GRADIENT, micro_batch)
