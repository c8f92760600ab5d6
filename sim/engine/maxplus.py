"""Rings by recurrence: where no two transfers compete, time is a matter of sums and maxima.

Each connection of a ring has its own links, and its receiver's additions, to itself. Its k-th transfer sets
out when the one that it passes on is complete at its source and a credit is available, and each of its links
carries it after the previous one. So the k-th transfers of all connections together are a few operations on
arrays, O(ranks) of memory, O(transfers of one connection) steps.

Only the links of a route that are slower than all before them cause waiting: data leave a link no faster than
its rate, and find a link that is no slower always free.

Where the ring is periodic in r ranks, links and chunks alike, its times are too: the recurrence rotates with
the ring. Then r connections stand for all.
"""

from dataclasses import dataclass, replace

import numpy as np

from ringside.sim import effort, jit
from ringside.sim.engine.wiring import Floats, SimulatedCollective, Wiring
from ringside.sim.schedule import Schedule
from ringside.sim.streams import TransferStreams

EVERY = 1 << 26
"""Transfers between two progress reports."""

MANY, SMALL = 100_000_000, 5000
"""Transfers per step from which the compiled recurrence is worth its start-up time."""


@dataclass(frozen=True, eq=False)
class Ring:
    """A ring: each passes on what the one ``before`` it (-1 or 1 away) sent ``back`` transfers ago.

    ``beta`` and ``ahead`` have a row per slow link of each route, in order: its seconds per byte and the
    latency from the slow link before it; ``behind`` is the latency after the last. The bytes of connection
    i's k-th transfer are ``sizes[q % s, q // s + i]`` with q = ``first`` + ``turn`` k and s the rows of
    ``sizes``, which repeat after a turn.
    """

    before: int
    back: int
    count: int
    sums: int
    first: int
    turn: int
    beta: Floats
    ahead: Floats
    behind: Floats
    sizes: Floats

    def __len__(self) -> int:
        return len(self.behind)

    def bytes_of(self, k: int) -> Floats:
        """Return the bytes of all connections' k-th transfers."""
        rows, begin = len(self.sizes), self.first + self.turn * k
        turned = begin // rows % len(self)
        return self.sizes[begin % rows, turned : turned + len(self)]

    def limited(self, credits: int) -> bool:
        """Check whether transfers may have to wait for a credit.

        They do not if there are always enough, or where a credit is back before the first link has finished
        the transfers that hold the others.
        """
        if credits >= self.count:
            return False
        return len(self.beta) > 1 or bool(
            (self.behind > (credits - 1) * self.sizes.min() * self.beta[0]).any()
        )

    def folded(self) -> "Ring":
        """Return the shortest ring that, repeated, equals this one."""
        size = len(self)
        columns = np.concatenate([self.beta, self.ahead, self.behind[None], self.sizes[:, :size]])
        for period in range(1, size // 2 + 1):
            if size % period == 0 and (columns[:, period:] == columns[:, :-period]).all():
                some = slice(period)
                return replace(
                    self,
                    beta=self.beta[:, some],
                    ahead=self.ahead[:, some],
                    behind=self.behind[some],
                    sizes=self.sizes[:, : 2 * period],
                )
        return self


def ring_of(schedule: Schedule, wiring: Wiring) -> Ring | None:
    """Return the schedule's ring on this topology, if it is one and nothing competes."""
    streams, size = schedule.steps, len(wiring.count)
    if (
        not isinstance(streams, TransferStreams)
        or not streams.is_ring
        or schedule.after
        or (wiring.stream >= 0).any()
    ):
        return None
    if len(np.unique(wiring.links)) < len(wiring.links) or len(np.unique(streams.dst)) < size:
        return None
    needs, rank = streams.needs, np.arange(size)
    whom = needs.whom[np.argsort(needs.who)]
    before = next((way for way in (-1, 1) if (whom == (rank + way) % size).all()), 0)
    rows = streams.chunks // size
    even = (
        rows * size == streams.chunks
        and ((streams.first - streams.first[0]) % streams.chunks == rank * rows % streams.chunks).all()
    )
    if not before or not even:
        return None
    nbytes = np.diff(schedule.chunks.bounds).astype(np.float64).reshape(size, rows).T
    beta, ahead, behind = _slow_links(wiring)
    return Ring(
        before=before, back=-int(needs.shift[0]), count=int(streams.count[0]), sums=int(streams.sums[0]),
        first=int(streams.first[0]), turn=streams.turn, beta=beta, ahead=ahead, behind=behind,
        sizes=np.concatenate([nbytes, nbytes], axis=1),
    )  # fmt: skip


def _slow_links(wiring: Wiring) -> tuple[Floats, Floats, Floats]:
    """Return the slow links of `Ring`; shorter routes are padded in front with infinitely fast ones."""
    size, hops = len(wiring.count), np.diff(wiring.start)
    slowest, behind = np.full(size, np.inf), np.zeros(size)
    beta, ahead = np.zeros((int(hops.max()), size)), np.zeros((int(hops.max()), size))
    counts = np.zeros(size, dtype=np.int64)
    for hop in range(int(hops.max())):
        there = np.flatnonzero(hops > hop)
        link = wiring.links[wiring.start[:-1][there] + hop]
        slow = there[wiring.bandwidth[link] < slowest[there]]
        speed = wiring.bandwidth[wiring.links[wiring.start[:-1][slow] + hop]]
        beta[counts[slow], slow], ahead[counts[slow], slow] = 1 / speed, behind[slow]
        slowest[slow], behind[slow] = speed, 0.0
        counts[slow] += 1
        behind[there] += wiring.latency[link]
    # a route's own links last
    most = counts.max()
    row = (np.arange(most)[:, None] + counts) % most
    return np.take_along_axis(beta, row, 0), np.take_along_axis(ahead, row, 0), behind


def play(ring: Ring, credits: int, gamma: float) -> float:
    """Return the seconds until the last transfer is complete."""
    size = len(ring)
    if not ring.limited(credits):
        credits = 0
    # completion at the receiver, by transfer, with neighbours at both sides
    done = np.zeros((ring.back + 1, size + 2))
    arrived = np.zeros((credits + 1, size))
    free, adder = np.zeros_like(ring.beta), np.zeros(size)
    state = done, arrived, free, adder
    every = max(EVERY // size, 1)
    compiled = jit.available() and ring.count * (size + SMALL) > MANY
    if compiled:
        from ringside.sim.engine.compiled.ring import turn

        if not jit.is_kept(turn):
            effort.say("compiling the ring's recurrence, once on this machine; about ten seconds")
    for begin in range(0, ring.count, every):
        effort.show(begin * size, ring.count * size)
        end = min(begin + every, ring.count)
        if compiled:
            figures = ring.beta, ring.ahead, ring.behind, ring.sizes
            lags, phases = (ring.back, credits, ring.before), (ring.sums, ring.first, ring.turn)
            turn(begin, end, lags, phases, figures, state, gamma)
        else:
            _turn(ring, begin, end, state, gamma)
    return float(done.max())


def _turn(ring: Ring, begin: int, end: int, state: tuple[Floats, ...], gamma: float) -> None:
    """Play the transfers from ``begin`` to before ``end``."""
    done, arrived, free, adder = state
    size = len(ring)
    time, cost = np.zeros(size), np.zeros(size)
    seen = slice(0, size) if ring.before < 0 else slice(2, size + 2)
    alike = bool((ring.sizes == ring.sizes[0, 0]).all())
    costs = [ring.sizes[0, 0] * beta for beta in ring.beta]
    for k in range(begin, end):
        here, sent = done[k % len(done)], arrived[k % len(arrived)]
        nbytes = ring.bytes_of(k)
        # the entry `back` before is next in turn, as is the one `credits` before
        wanted, freed = done[(k + 1) % len(done)][seen], arrived[(k + 1) % len(arrived)]
        np.maximum(wanted, freed if len(arrived) > 1 else 0.0, out=time)
        for number, beta in enumerate(ring.beta):
            np.add(time, ring.ahead[number], out=time)
            np.maximum(time, free[number], out=time)
            np.add(time, costs[number] if alike else np.multiply(nbytes, beta, out=cost), out=free[number])
        np.add(free[-1], ring.behind, out=sent)
        if gamma and k < ring.sums:
            np.maximum(sent, adder, out=adder)
            np.add(adder, np.multiply(nbytes, gamma, out=cost), out=adder)
            here[1:-1] = adder
        else:
            here[1:-1] = sent
        here[0], here[-1] = here[-2], here[1]


def simulate(ring: Ring, schedule: Schedule, gamma: float) -> SimulatedCollective:
    """Return the schedule's time by its ring's recurrence."""
    return SimulatedCollective(
        play(ring.folded(), schedule.credits, gamma), len(ring) * ring.count, engine="fast"
    )
