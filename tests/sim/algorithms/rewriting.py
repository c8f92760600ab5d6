"""Split schedules into single transfers, and build schedules from changed ones."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ringside.sim.schedule import Schedule, Step, step


class Move(NamedTuple):
    src: int
    dst: int
    chunk: int
    span: int
    channel: int
    reduce: bool


def moves(plan: Schedule) -> list[list[Move]]:
    return [
        [Move(*fields) for fields in zip(*(getattr(s, name).tolist() for name in Move._fields), strict=True)]
        for s in plan.steps()
    ]


def with_moves(plan: Schedule, changed: list[list[Move]]) -> Schedule:
    def steps() -> Iterator[Step]:
        for wave in filter(None, changed):
            src, dst, chunk, span, channel, reduce = zip(*wave, strict=True)
            yield step(src, dst, chunk, span=span, channel=channel, reduce=reduce)

    return replace(plan, steps=steps)


def in_channels(plan: Schedule, channels: int, chance: random.Random) -> Schedule:
    """Put each transfer on a random channel, so that two ranks have several connections."""
    return with_moves(
        plan, [[move._replace(channel=chance.randrange(channels)) for move in wave] for wave in moves(plan)]
    )
