"""MSCCL's XML as a `Schedule`.

In a schedule a rank has one part of each chunk, which grows by additions or is overwritten by a more complete
one. A file may keep received data beside its own, in scratch, and add them later: the transfer then adds, as
late. Data sent on before they are added, or sent from an older copy, fit no schedule; they are refused with
their line.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import networkx as nx
import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.formats import FormatError
from ringside.sim.formats.msccl_order import StepEvent, events, refuse_races
from ringside.sim.formats.msccl_read import READS, SENDS, WRITES, Algorithm, MscclStep, Slot
from ringside.sim.proof import prove
from ringside.sim.schedule import Schedule, ScheduleError, even_chunks, step
from ringside.sim.steps import Step as Moved

OWN = -1
"""A rank's own contribution, where others are numbers of transfers."""


class Value(NamedTuple):
    """The content of a slot: a sum of parts, which are transfers to its rank or the rank's own data."""

    chunk: int
    contributions: int
    parts: frozenset[int]


class ValueTransfer(NamedTuple):
    """One chunk on its way; those of one ``message`` leave together, by the step on ``line``."""

    message: int
    src: int
    dst: int
    channel: int
    value: Value
    line: int


class Values:
    """The content of all slots after ordered steps; it satisfies the collective's promise."""

    def __init__(self, algorithm: Algorithm, order: Sequence[StepEvent], *, in_place: bool) -> None:
        self.transfers: list[ValueTransfer] = []
        self.results: list[tuple[int, Value]] = []
        """The rank and the value of each chunk that the collective demands."""
        self.starts: dict[tuple[int, int], Value] = {}
        """Ranks' own data, by rank and chunk."""
        self._algorithm = algorithm
        self._in_place = in_place
        self._collective = Collective(algorithm.kind, algorithm.ranks, algorithm.ranks)
        self._memory: list[dict[Slot, Value]] = []
        self._messages: dict[int, range] = {}
        """Transfers sent and not yet received, by event."""
        for rank in range(algorithm.ranks):
            memory = {}
            for place, chunk in enumerate(self._chunks(self._collective.blocks_before(rank))):
                own = self.starts[rank, chunk] = Value(chunk, 1 << rank, frozenset((OWN,)))
                memory[self._cell(rank, ("i", place))] = own
            self._memory.append(memory)
        for number, event in enumerate(order):
            self._go(number, event)
        self._finish()

    def _go(self, number: int, event: StepEvent) -> None:
        rank, step = event.rank, event.step
        came = () if event.received is None else self._messages.pop(event.received)
        first = len(self.transfers)
        for place in range(0 if step.type == "nop" else step.count):
            source, target = (
                self._cell(rank, (buffer, start + place)) for buffer, start in (step.source, step.target)
            )
            terms = []
            if step.type in READS:
                terms.append(self._read(rank, step, source))
            if step.type == "re":
                terms.append(self._read(rank, step, target))
            if came:
                sent = self.transfers[came[place]].value
                terms.append(sent._replace(parts=frozenset((came[place],))))
            value = terms[0] if len(terms) == 1 else self._sum(step, *terms)
            if step.type in WRITES:
                self._memory[rank][target] = value
            if step.type in SENDS:
                block = self._algorithm.blocks[rank][event.block]
                self.transfers.append(
                    ValueTransfer(number, rank, block.send, block.channel, value, step.line)
                )
        if step.type in SENDS:
            self._messages[number] = range(first, len(self.transfers))

    def _read(self, rank: int, step: MscclStep, cell: Slot) -> Value:
        if cell not in self._memory[rank]:
            raise self._algorithm.wrong(
                step.line, f"gpu {rank} reads chunk {cell[1]} of {cell[0]}, where nothing was written"
            )
        return self._memory[rank][cell]

    def _sum(self, step: MscclStep, one: Value, other: Value) -> Value:
        if one.chunk != other.chunk:
            raise self._algorithm.wrong(step.line, f"chunk {other.chunk} is added to chunk {one.chunk}")
        if one.contributions & other.contributions:
            raise self._algorithm.wrong(
                step.line, f"a contribution to chunk {one.chunk} is added a second time"
            )
        return Value(one.chunk, one.contributions | other.contributions, one.parts | other.parts)

    def _finish(self) -> None:
        """Refuse outputs that break the collective's promise."""
        for rank in range(self._algorithm.ranks):
            for number, chunk in enumerate(self._chunks(self._collective.blocks_after(rank))):
                value = self._memory[rank].get(self._cell(rank, ("o", number)))
                whole = self._collective.contributors(chunk // self._algorithm.per_block)
                if value is None or value[:2] != (chunk, whole):
                    called = " where it is called in place" * (len(self._algorithm.in_place) > self._in_place)
                    raise FormatError(
                        f"{self._algorithm.file}: at the end chunk {number} of gpu {rank}'s output is not "
                        f"what {self._algorithm.kind} promises{called if self._in_place else ''}"
                    )
                self.results.append((rank, value))

    def _chunks(self, blocks: range) -> Iterator[int]:
        """Return the chunks of some parts of the data, in order."""
        per_block = self._algorithm.per_block
        return (block * per_block + place for block in blocks for place in range(per_block))

    def _cell(self, rank: int, slot: Slot) -> Slot:
        return self._algorithm.cell(rank, slot, in_place=self._in_place)


def build(algorithm: Algorithm) -> Callable[[Collective], Schedule]:
    """Return the schedule of an algorithm, for any size of its collective; proved.

    Raise `FormatError` with the line where steps race, wait forever, cannot be a schedule or break the
    collective's promise.
    """
    order = events(algorithm)
    ways = []
    for in_place in algorithm.in_place:
        refuse_races(algorithm, order, in_place=in_place)
        ways.append(Values(algorithm, order, in_place=in_place))
    steps = _Order(algorithm, ways[0]).steps()

    def schedule(collective: Collective) -> Schedule:
        chunks = even_chunks(collective, algorithm.per_block)
        # not a built-in name, by which engines would use its closed form
        return Schedule(collective, f"{algorithm.name}.xml", chunks, lambda: iter(steps))

    plan = schedule(Collective(algorithm.kind, algorithm.ranks, algorithm.ranks * algorithm.per_block))
    try:
        prove(plan)
    except ScheduleError:
        # a schedule separates by copies what the file separates by dependencies
        try:
            prove(replace(plan, copies=True))
        except ScheduleError as error:
            raise FormatError(
                f"{algorithm.file}: correct with depid, but not as a schedule, which has no depid: {error}"
            ) from None
        return lambda collective: replace(schedule(collective), copies=True)
    return schedule


class Version(NamedTuple):
    """A rank's part of a chunk when it is sent: after ``copy`` overwrote it and ``sums`` were added."""

    copy: list[int]
    sums: list[int]
    sends: list[int]


class _Order:
    """The order of transfers."""

    def __init__(self, algorithm: Algorithm, values: Values) -> None:
        self._algorithm = algorithm
        self._transfers = values.transfers
        self._reduce: dict[int, bool] = {}
        """Whether each transfer is added."""
        self._beyond: set[tuple[int, int]] = set()
        """Pairs whose second is in a later step than the first."""
        self._order: nx.DiGraph[int] = nx.DiGraph()
        self._order.add_nodes_from(range(len(self._transfers)))
        sends: dict[tuple[int, int], dict[Value, list[int]]] = defaultdict(lambda: defaultdict(list))
        for rank, value in values.results:
            sends[rank, value.chunk][value] = []
        last: dict[tuple[int, int, int], int] = {}
        for number, one in enumerate(self._transfers):
            sends[one.src, one.value.chunk][one.value].append(number)
            connection = one.src, one.dst, one.channel
            if connection in last:
                self._join([last[connection]], [number], strict=False)
            last[connection] = number
        for part, some in sends.items():
            self._follow(list(self._versions(part[0], values.starts.get(part), some)))
        for number, one in enumerate(self._transfers):
            if number not in self._reduce:
                raise algorithm.wrong(
                    one.line,
                    f"gpu {one.dst} receives chunk {one.value.chunk} from {one.src} and does nothing with it",
                )

    def steps(self) -> list[Moved]:
        """Return the transfers in as few steps as possible, those of a message in one where possible."""
        messages: dict[tuple[int, bool], list[int]] = defaultdict(list)
        for number, one in enumerate(self._transfers):
            messages[one.message, self._reduce[number]].append(number)
        whole = [pair for some in messages.values() for pair in pairwise([*some, some[0]])]
        levels = self._levels(whole) or self._levels([])
        if levels is None:
            raise FormatError(
                f"{self._algorithm.file}: chunks are sent and kept in an order that no schedule can express"
            )
        by_level: dict[int, list[int]] = defaultdict(list)
        for number in range(len(self._transfers)):
            by_level[levels[number]].append(number)
        return [self._moved(some) for _, some in sorted(by_level.items())]

    def _levels(self, weak: Sequence[tuple[int, int]]) -> dict[int, int] | None:
        """Return the step of each transfer, with ``weak`` pairs no later than each other, or None."""
        order = self._order.copy()
        order.add_edges_from(weak)
        together = nx.condensation(order)
        group = together.graph["mapping"]
        beyond = {(group[one], group[other]) for one, other in self._beyond}
        level: dict[int, int] = {}
        for one in nx.topological_sort(together):
            if (one, one) in beyond:
                return None
            before = (level[other] + ((other, one) in beyond) for other in together.predecessors(one))
            level[one] = max(before, default=0)
        return {number: level[group[number]] for number in order}

    def _moved(self, some: list[int]) -> Moved:
        """Return one step: neighbouring chunks of a message with equal treatment are one transfer."""
        rows: list[list[int]] = []
        last: tuple[int, int, bool] | None = None
        for number in some:
            one, reduce = self._transfers[number], self._reduce[number]
            chunk = one.value.chunk
            if last == (one.message, chunk, reduce):
                rows[-1][3] += 1
            else:
                rows.append([one.src, one.dst, chunk, 1, one.channel, reduce])
            last = one.message, chunk + 1, reduce
        src, dst, chunks, span, channel, adds = np.array(rows, dtype=np.int64).T
        return step(src, dst, chunks, span=span, channel=channel, reduce=adds.astype(np.bool_))

    def _versions(self, rank: int, own: Value | None, sends: dict[Value, list[int]]) -> Iterator[Version]:
        """Return the successive versions of a rank's part of a chunk; the first is its ``own``, if any."""
        held = own
        for value in sorted(sends, key=lambda value: value.contributions.bit_count()):
            copy, sums = [], sorted(value.parts - held.parts if held else value.parts)
            if not (held and held.parts <= value.parts):
                before = held.contributions if held else 0
                copy = [
                    one
                    for one in sums
                    if one != OWN and not before & ~self._transfers[one].value.contributions
                ][:1]
                if not copy:
                    raise self._two_copies(rank, value, sends[value])
                sums.remove(copy[0])
            self._reduce.update(dict.fromkeys(copy, False) | dict.fromkeys(sums, True))
            held = value
            yield Version(copy, sums, sends[value])

    def _follow(self, versions: Sequence[Version]) -> None:
        """Order versions: each is written before it is sent, and sent before, or with, the next write."""
        written: list[int] = []
        sent: list[int] = []
        for copy, sums, sends in versions:
            self._join(sent, copy + sums, strict=False)
            self._join(written, copy, strict=True)
            self._join(copy, sums, strict=True)
            written = (copy if copy else written) + sums
            self._join(written, sends, strict=True)
            sent = sends

    def _join(self, before: Sequence[int], after: Sequence[int], *, strict: bool) -> None:
        """Order some before others, or no later; many and many by way of a node between them."""
        if len(before) > 1 < len(after):
            between = [len(self._order)]
            self._join(before, between, strict=strict)
            self._join(between, after, strict=False)
            return
        pairs = [(one, other) for one in before for other in after]
        self._order.add_edges_from(pairs)
        if strict:
            self._beyond.update(pairs)

    def _two_copies(self, rank: int, value: Value, sends: Sequence[int]) -> FormatError:
        message = f"gpu {rank} has two copies of chunk {value.chunk}, and a schedule cannot express this one"
        if sends:
            return self._algorithm.wrong(self._transfers[sends[0]].line, message)
        return FormatError(f"{self._algorithm.file}: {message}: the one in its output")
