"""Makes a `CompiledWorld` of a schedule's connections, before anything has happened."""

from typing import Any

import numpy as np

from ringside.sim.engine.compiled.world import (
    CONNECTION,
    EDGE,
    GATE,
    LATER,
    LINK,
    MESSAGE,
    NEED,
    NOW,
    RANGE,
    STREAM,
    WAITING,
    WORLD,
    lines,
)
from ringside.sim.engine.wiring import Ints, Wiring, needs
from ringside.sim.schedule import Schedule
from ringside.sim.streams import TransferStreams

_KEY_BITS = 61

_ROOM = 4_000_000
"""Initial memory of a run, in messages."""


class CompiledWorld:
    """The record that compiled code uses; it keeps the arrays that the record points to alive.

    More ``generosity`` gives memory for more messages and gates, and for ``rates`` of each message and link;
    untouched parts use no memory.
    """

    def __init__(self, schedule: Schedule, wiring: Wiring, gamma: float, generosity: int, rates: int) -> None:
        streams = schedule.steps if isinstance(schedule.steps, TransferStreams) else None
        self._arrays: dict[str, Any] = {}
        self.record = np.zeros(1, dtype=WORLD)[0]
        record = self.record
        most = _most_messages(schedule, wiring, streams, gamma)
        record["room"] = room = generosity * min(_ROOM, most + 1)
        record["width"] = rates
        record["num_gates"] = num_gates = 1 if streams else 2 * room
        record["gamma"], record["ranks"] = gamma, schedule.ranks
        record["until"], record["within"] = -np.inf, wiring.within
        record["segment"], record["to_do"] = wiring.segment, wiring.count.sum()
        for name in ("fresh", "fresh_gate", "fresh_range", "fresh_edge"):
            record[name] = 1
        ways = _connections(schedule, wiring, streams)
        ways["order"], record["place_shift"] = _keys(schedule, wiring)
        if streams:
            need_table, wakes = _add_needs(ways, wiring, streams)
            self.hold(need_table=need_table, wake_table=wakes)
            record["streamed"], record["turn"], record["modulus"] = 1, streams.turn, streams.chunks
        else:
            record["num_dry"] = len(wiring.count)
        links = np.zeros(len(wiring.bandwidth), dtype=LINK)
        links["bandwidth"], links["latency"] = wiring.bandwidth, wiring.latency
        varied = room if len(set(wiring.bandwidth.tolist())) > 1 else 1
        routes = np.zeros(int(wiring.stream.max(initial=-1)) + 1, dtype=STREAM)
        routes["room"] = wiring.window
        if wiring.segment:
            routes["shared"] = np.bincount(wiring.stream) > 1
        record["num_connections"], record["num_links"] = len(wiring.count), len(links)
        record["num_bounds"], record["num_ends"] = len(schedule.chunks.bounds), schedule.ends
        self.hold(
            links=links, connections=ways, streams=routes, routes=wiring.links,
            partly=np.empty((len(links), rates, 2)), rates=np.empty((varied, rates, 2)),
            scratch=np.empty((2, 4 * rates, 2)),
            later_table=_add_laters(ways, schedule, wiring),
            messages=lines(room, MESSAGE), waiting=np.empty(room, dtype=WAITING),
            later=np.empty(room, dtype=LATER), now=np.empty(room, dtype=NOW),
            bounds=np.ascontiguousarray(schedule.chunks.bounds, dtype=np.int64),
            adders=np.zeros(schedule.ends),
            gates=np.empty(num_gates, dtype=GATE), ranges=np.empty(2 * num_gates, dtype=RANGE),
            edges=np.empty(6 * num_gates, dtype=EDGE), entries=np.zeros(schedule.ends, dtype=np.int64),
            dry=np.arange(len(wiring.count)),
        )  # fmt: skip

    def hold(self, **arrays: Any) -> None:
        """Keep arrays and store their addresses."""
        self._arrays.update(arrays)
        for name, array in arrays.items():
            self.record[name] = array.ctypes.data


def _most_messages(schedule: Schedule, wiring: Wiring, streams: TransferStreams | None, gamma: float) -> int:
    """Return the maximum number of concurrent messages, pieces and waiting ones included."""
    under_way = wiring.count if streams is None else np.minimum(wiring.count, schedule.credits)
    # an arrived transfer returns its credit before it is added
    to_add = np.minimum(streams.sums, streams.count).sum() if streams and gamma else 0
    pieces = np.where(wiring.stream >= 0, wiring.pieces + 1, 1)
    if wiring.segment:
        pieces = np.full(len(pieces), 2 + int(schedule.chunks.bounds[-1]) // wiring.segment)
    return int((under_way * pieces).sum() + to_add)


def _connections(schedule: Schedule, wiring: Wiring, streams: TransferStreams | None) -> Any:
    """Return a record per connection."""
    ways = lines(len(wiring.count), CONNECTION)
    ways[:] = np.zeros(1, dtype=CONNECTION)
    ways["route"] = wiring.start[:-1]
    ways["hops"] = np.diff(wiring.start)
    ways["credits"] = np.minimum(schedule.credits, wiring.count)
    ways["count"] = ways["to_arrive"] = wiring.count
    ways["source"], ways["target"] = wiring.src, wiring.dst
    ways["pieces"], ways["stream"] = wiring.pieces, wiring.stream
    if streams:
        ways["first"] = streams.first[wiring.column]
        ways["sums"] = np.minimum(streams.sums, streams.count)[wiring.column]
    return ways


def _keys(schedule: Schedule, wiring: Wiring) -> tuple[Ints, int]:
    """Return where each connection's keys begin, and the bits below a transfer's place, for pieces."""
    pieces = 0
    if wiring.segment:
        pieces = (int(schedule.chunks.bounds[-1]) // wiring.segment + 1).bit_length()
    elif (wiring.stream >= 0).any():
        pieces = int(wiring.pieces.max()).bit_length()
    transfers = pieces + int(wiring.count.max()).bit_length()
    if transfers + len(wiring.count).bit_length() > _KEY_BITS:
        raise schedule.error("more transfers than keys can distinguish; write fewer ranks, or --engine simpy")
    return wiring.place << transfers, pieces


def _add_needs(ways: Any, wiring: Wiring, streams: TransferStreams) -> tuple[Any, Ints]:
    """Add each connection's transfers' needs, and the connections that need its transfers."""
    count, rows = len(wiring.count), needs(wiring, streams)
    by_who, by_whom = rows[np.argsort(rows[:, 0])], rows[np.argsort(rows[:, 1])]
    for some, column in (("need", by_who[:, 0]), ("wake", by_whom[:, 1])):
        begin = np.searchsorted(column, np.arange(count + 1))
        ways[some], ways[f"{some}s"] = begin[:-1], np.diff(begin)
    table = np.zeros(len(rows), dtype=NEED)
    table["whom"], table["shift"] = by_who[:, 1], by_who[:, 2]
    return table, np.ascontiguousarray(by_whom[:, 0])


def _add_laters(ways: Any, schedule: Schedule, wiring: Wiring) -> Ints:
    """Add the connections that wait for each one's end."""
    of_pair: dict[tuple[int, int], list[int]] = {}
    if schedule.after:
        for number, pair in enumerate(zip(wiring.src.tolist(), wiring.dst.tolist(), strict=True)):
            of_pair.setdefault(pair, []).append(number)
    pairs = [
        (early, late)
        for later, earlier in schedule.after.items()
        for late in of_pair.get(later, ())
        for early in of_pair.get(earlier, ())
    ]
    rows = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    begin = np.searchsorted(rows[:, 0], np.arange(len(ways) + 1))
    ways["later"], ways["laters"] = begin[:-1], np.diff(begin)
    ways["held"] = np.bincount(rows[:, 1], minlength=len(ways))
    return np.ascontiguousarray(rows[:, 1])
