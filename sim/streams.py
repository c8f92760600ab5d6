"""Steps described per connection, for rings and pipelines: the k-th transfer of each.

A schedule of a billion transfers is then known from a few numbers per connection: volumes and dependencies
need no walk along its steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.sim.steps import Chunks, Ints, Step


@dataclass(frozen=True, slots=True)
class Needs:
    """Dependencies of connections: the k-th transfer of ``who`` waits for the (k + ``shift``)-th of ``whom``.

    Before the 0-th there is no dependency; past the last it is a transfer of an earlier turn.
    """

    who: Ints
    whom: Ints
    shift: Ints


@dataclass(frozen=True, eq=False)
class TransferStreams:
    """Steps in each of which a connection sends one transfer, from step ``lag`` on and ``count`` in all.

    Arrays of equal length have each connection's ranks, its channel, its ``first`` chunk, and the number of
    initial transfers, ``sums``, that the receiver adds. From transfer to transfer the chunk goes up by
    ``turn``, 1 or -1, and wraps around after the last of ``chunks``. A call makes the steps, as
    `ringside.sim.plan.Plan.steps` does.
    """

    src: Ints
    dst: Ints
    channel: Ints
    lag: Ints
    count: Ints
    first: Ints
    sums: Ints
    chunks: int
    turn: int = 1

    @classmethod
    def of(cls, src: Any, dst: Any, *, chunks: int, turn: int = 1, **columns: Any) -> "TransferStreams":
        """Broadcast columns against each other; ``channel`` and ``lag`` are optional."""
        names = ("src", "dst", "channel", "lag", "count", "first", "sums")
        given = {"channel": 0, "lag": 0, **columns, "src": src, "dst": dst}
        arrays = np.broadcast_arrays(*(np.atleast_1d(given[name]) for name in names))
        src, dst, channel, lag, count, begin, sums = (array.astype(np.int64) for array in arrays)
        return cls(src, dst, channel, lag, count, begin, sums, chunks, turn)

    def beside(self, other: "TransferStreams") -> "TransferStreams":
        """Combine both: in each step first this one's transfers, then the other's."""
        names = ("src", "dst", "channel", "lag", "count", "first", "sums")
        both: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names
        }
        return replace(self, **both)

    def __call__(self) -> Iterator[Step]:
        """Yield the steps, one after another."""
        always = not self.lag.any() and len(set(self.count.tolist())) == 1
        ends = self.src, self.dst, self.channel
        spans = np.ones(len(self.src), dtype=np.int64)
        for number in range(int((self.lag + self.count).max(initial=0))):
            place = number - self.lag
            chunk, adds = (self.first + self.turn * place) % self.chunks, place < self.sums
            if always:
                yield Step(ends[0], ends[1], chunk, spans, ends[2], adds)
                continue
            now = (place >= 0) & (place < self.count)
            src, dst, channel = (column[now] for column in ends)
            yield Step(src, dst, chunk[now], spans[: len(src)], channel, adds[now])

    @cached_property
    def order(self) -> Ints:
        """The connections in the order of first use."""
        order: Ints = np.argsort(self.lag, kind="stable")
        return order[self.count[order] > 0]

    def connections(self) -> dict[tuple[int, int, int], int]:
        """Count the transfers of each connection, in order of first use."""
        return self._by_connection(self.count)

    def traffic(self, chunks: Chunks) -> dict[tuple[int, int, int], int]:
        """Return the bytes that each connection moves in all, in order of first use."""
        turns, rest = np.divmod(self.count, self.chunks)
        first = (self.first if self.turn > 0 else self.first - rest + 1) % self.chunks
        bounds = np.concatenate([chunks.bounds, chunks.bounds[-1] + chunks.bounds[1:]])
        return self._by_connection(turns * chunks.bounds[-1] + bounds[first + rest] - bounds[first])

    def _by_connection(self, figures: Ints) -> dict[tuple[int, int, int], int]:
        columns = (column[self.order].tolist() for column in (self.src, self.dst, self.channel))
        return dict(zip(zip(*columns, strict=True), figures[self.order].tolist(), strict=True))

    @cached_property
    def needs(self) -> Needs:
        """The transfers that deliver the data each one forwards, from the steps before it."""
        by_target = np.argsort(self.dst, kind="stable")
        begin = np.searchsorted(self.dst[by_target], self.src)
        many = np.searchsorted(self.dst[by_target], self.src, side="right") - begin
        who = np.repeat(np.arange(len(self.src)), many)
        within = np.arange(len(who)) - np.repeat(np.cumsum(many) - many, many)
        whom = by_target[np.repeat(begin, many) + within]
        base = self.turn * (self.first[who] - self.first[whom]) % self.chunks
        # the last of those that carry the same chunk in an earlier step
        shift = base + (self.lag[who] - self.lag[whom] - 1 - base) // self.chunks * self.chunks
        # no transfer refers past the last one
        past = np.maximum(shift - self.count[whom] + 1, 0)
        shift -= -(-past // self.chunks) * self.chunks
        meets = (base < self.count[whom]) | (base + self.count[who] > self.chunks)
        real = np.where(shift >= 0, meets, shift + self.count[who] > 0) & (self.count[whom] > 0)
        return Needs(who[real], whom[real], shift[real])

    @cached_property
    def is_line(self) -> bool:
        """Whether each transfer needs only transfers of the same number, so that chunks take one route."""
        return bool((self.needs.shift == 0).all())

    @cached_property
    def is_ring(self) -> bool:
        """Whether each connection forwards one other's data, after the same number of transfers for all."""
        needs = self.needs
        alike = all(len(np.unique(figure)) == 1 for figure in (needs.shift, self.count, self.lag, self.sums))
        each_once = len(needs.who) == len(np.unique(needs.who)) == len(self.src)
        return alike and each_once and bool(needs.shift[0] < 0) and not self.lag.any()

    def longest(self, latency: NDArray[np.float64]) -> float:
        """Return the longest sum of the connections' latencies along a chain of dependent transfers.

        Only for lines and rings.
        """
        if not self.is_line:
            return self._around(latency)
        needs = self.needs
        end = latency.copy()
        for lag in np.unique(self.lag)[1:]:
            now = self.lag[needs.who] == lag
            who = needs.who[now]
            np.maximum.at(end, who, latency[who] + end[needs.whom[now]])
        return float(end[self.order].max(initial=0.0))

    def _around(self, latency: NDArray[np.float64]) -> float:
        """Return the longest sum around a ring."""
        back = -int(self.needs.shift[0])
        before, length = np.arange(len(latency)), (self.count - 1) // back + 1
        before[self.needs.who] = self.needs.whom
        total, reach = np.zeros_like(latency), np.arange(len(latency))
        jump, summed = before, latency
        for bit in range(int(length.max()).bit_length()):
            now = (length >> bit & 1).astype(bool)
            total[now] += summed[reach[now]]
            reach[now] = jump[reach[now]]
            summed, jump = summed + summed[jump], jump[jump]
        return float(total.max(initial=0.0))
