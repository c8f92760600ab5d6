"""A timeline carried out again: what each rank has of its result, and when."""

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import KINDS, Collective
from ringside.sim.engine.timeline import Timeline
from ringside.sim.schedule import Ints


@dataclass(frozen=True, slots=True)
class Progress:
    """What ranks have from each moment on, and what was sent.

    ``shares`` are by rank, or switch after them: the moment in seconds, the share of the contributions to its
    result that it has, and the share of the result that is complete. ``carried`` says of each transfer
    whether its data were complete. ``chain`` is the largest number of messages that wait for one another,
    ``sent`` the bytes that each rank sent.
    """

    shares: list[list[tuple[float, float, float]]]
    carried: list[bool]
    chain: int
    sent: list[int]

    def complete_at(self) -> list[float]:
        """Return when each rank that gets a result has all of it, in seconds."""
        return [own[-1][0] for own in self.shares if own[-1][2] > 1 - 1e-9]


def replay(timeline: Timeline, collective: Collective, blocks: Ints) -> Progress:
    """Carry out the transfers in the order of their times; ``blocks`` has the block of each chunk."""
    state = _State(timeline, collective, blocks)
    arriving: list[tuple[float, int]] = []
    departing = sorted(range(len(timeline.transfers)), key=lambda place: timeline.transfers[place].sent)
    for place in departing:
        moment = timeline.transfers[place].sent
        while arriving and arriving[0][0] <= moment:
            state.arrive(heappop(arriving)[1])
        state.depart(place)
        heappush(arriving, (timeline.transfers[place].delivered, place))
    while arriving:
        state.arrive(heappop(arriving)[1])
    return Progress(state.shares, state.carried, state.chain, state.sent)


class _State:
    """The contributions that each end has of each chunk, counted."""

    def __init__(self, timeline: Timeline, collective: Collective, blocks: Ints) -> None:
        self._transfers = timeline.transfers
        ends = timeline.ranks + timeline.switches
        used = np.zeros(len(blocks), dtype=np.bool_)
        for sent in timeline.transfers:
            used[sent.chunk : sent.chunk + sent.span] = True
        self._all = timeline.ranks if KINDS[collective.kind].reduces else 1
        self._count = np.zeros((ends, len(blocks)), dtype=np.int64)
        self._goal = np.tile(used, (ends, 1))
        for rank in range(timeline.ranks):
            self._count[rank] = np.isin(blocks, collective.blocks_before(rank))
            after = used & np.isin(blocks, collective.blocks_after(rank))
            self._goal[rank] = after if after.any() else used
        self._goals = np.maximum(self._goal.sum(axis=1), 1)
        self._depth = np.zeros((ends, len(blocks)), dtype=np.int64)
        self._on_the_way: dict[int, tuple[NDArray[np.int64], int]] = {}
        self.carried = [False] * len(timeline.transfers)
        self.chain = 0
        self.sent = [0] * ends
        self.shares: list[list[tuple[float, float, float]]] = [[self._share(0.0, end)] for end in range(ends)]

    def depart(self, place: int) -> None:
        """Send what the source has now."""
        one = self._transfers[place]
        some = slice(one.chunk, one.chunk + one.span)
        carried, depth = self._count[one.src, some].copy(), int(self._depth[one.src, some].max()) + 1
        self._on_the_way[place] = carried, depth
        self.carried[place] = bool((carried >= self._all).all())
        self.chain = max(self.chain, depth)
        self.sent[one.src] += one.nbytes

    def arrive(self, place: int) -> None:
        """Add the data at the destination, or replace its own."""
        one = self._transfers[place]
        some = slice(one.chunk, one.chunk + one.span)
        carried, depth = self._on_the_way.pop(place)
        held = self._count[one.dst, some]
        self._count[one.dst, some] = np.minimum(held + carried, self._all) if one.reduce else carried
        self._depth[one.dst, some] = np.maximum(self._depth[one.dst, some], depth)
        self.shares[one.dst].append(self._share(one.delivered, one.dst))

    def _share(self, moment: float, end: int) -> tuple[float, float, float]:
        held = self._count[end][self._goal[end]]
        gathered, complete = float(held.sum()), float((held >= self._all).sum())
        return moment, gathered / (self._all * self._goals[end]), complete / self._goals[end]
