"""The values that the steps of MSCCL's XML move: sets of contributions in place of numbers."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.formats import FormatError
from ringside.sim.formats.msccl_order import StepEvent
from ringside.sim.formats.msccl_read import READS, SENDS, WRITES, Algorithm, MscclStep, Slot

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
