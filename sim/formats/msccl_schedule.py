"""MSCCL's XML as a `Schedule`: its steps are carried out with sets of contributions in place of numbers.

In a schedule a rank has one part of each chunk. A file may keep what it received beside its own, in scratch,
and add it later: the transfer then adds, as late. What is sent on before it is added, or read from an older
copy, no schedule can say; it is refused with its line.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import networkx as nx
import numpy as np

from sim.collective import Collective
from sim.formats import FormatError
from sim.formats.msccl_read import RECEIVES, SENDS, Algorithm, Block, Slot, Step
from sim.proof import prove
from sim.schedule import Schedule, ScheduleError, even_chunks, step
from sim.steps import Step as Moved


class Held(NamedTuple):
    """What lies in a slot: whose contributions to a chunk; ``came`` is a transfer that is yet to be added."""

    chunk: int
    contributions: int
    came: int | None = None


class Transfer(NamedTuple):
    """One chunk on its way, in a message; the source sent it after its first ``sent`` writes of it."""

    message: int
    src: int
    dst: int
    channel: int
    chunk: int
    sent: int
    contributions: int


def build(algorithm: Algorithm) -> Callable[[Collective], Schedule]:
    """The schedule of an algorithm, for any size of its collective; proved.

    Raise `FormatError` with the line where it cannot be a schedule, or does not what its collective promises.
    """
    run = _Run(algorithm)
    steps = run.steps()

    def schedule(collective: Collective) -> Schedule:
        chunks = even_chunks(collective, algorithm.per_block)
        # not a name of ours, by which engines would know its closed form
        return Schedule(
            collective, f"{algorithm.name}.xml", chunks, lambda: iter(steps), copies=run.exchanges
        )

    try:
        prove(schedule(Collective(algorithm.kind, algorithm.ranks, algorithm.ranks * algorithm.per_block)))
    except ScheduleError as error:
        raise FormatError(f"{algorithm.file}: {error}") from None
    return schedule


class _Run:
    """One execution of all thread blocks, and what it moved."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.collective = Collective(algorithm.kind, algorithm.ranks, algorithm.ranks)
        self.memory: list[dict[Slot, Held]] = []
        self.parts: list[dict[int, int]] = []
        """By rank and chunk: whose contributions the rank's part has."""
        for rank in range(algorithm.ranks):
            own = dict.fromkeys(self._chunks(self.collective.blocks_before(rank)), 1 << rank)
            self.parts.append(own)
            self.memory.append({self._slot(rank, ("i", n)): Held(c, own[c]) for n, c in enumerate(own)})
        self.transfers: list[Transfer] = []
        self.reduce: dict[int, bool] = {}
        """Of each transfer that has been written: whether it was added."""
        self.writes: dict[tuple[int, int], list[int]] = {}
        """The transfers that wrote each rank's part of a chunk, in order."""
        self.exchanges = False
        """Whether ranks send each other sums, known when there are steps."""
        self._messages = 0
        self._links: dict[tuple[int, int, int], deque[list[int]]] = {}
        self._done = [dict.fromkeys(blocks, 0) for blocks in algorithm.blocks]
        self._run()
        self._check_end()

    def steps(self) -> list[Moved]:
        """The transfers in as few steps as their order allows."""
        order: nx.DiGraph[int] = nx.DiGraph()
        order.add_nodes_from(range(len(self.transfers)))
        strict, weak = self._order()
        order.add_edges_from((*strict, *weak))
        together = nx.condensation(order)
        group = together.graph["mapping"]
        self.exchanges = len(together) < len(order)
        beyond = {(group[one], group[other]) for one, other in strict}
        level: dict[int, int] = {}
        for one in nx.topological_sort(together):
            if (one, one) in beyond:
                raise self._unordered(min(together.nodes[one]["members"]))
            before = (level[other] + ((other, one) in beyond) for other in together.predecessors(one))
            level[one] = max(before, default=0)
        found: list[list[int]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
        for number in range(len(self.transfers)):
            found[level[group[number]]].append(number)
        return [self._moved(some) for some in found]

    def _unordered(self, number: int) -> FormatError:
        one = self.transfers[number]
        return FormatError(
            f"{self.algorithm.file}: chunk {one.chunk} from gpu {one.src} to {one.dst} is sent and kept in "
            "an order that no schedule has"
        )

    def _moved(self, some: list[int]) -> Moved:
        """One step: neighbouring chunks of a message that are treated alike are one transfer."""
        rows: list[list[int]] = []
        last: tuple[int, int, bool] | None = None
        for one in some:
            message, src, dst, channel, chunk, *_ = self.transfers[one]
            if last == (message, chunk, self.reduce[one]):
                rows[-1][3] += 1
            else:
                rows.append([src, dst, chunk, 1, channel, self.reduce[one]])
            last = message, chunk + 1, self.reduce[one]
        src, dst, chunk, span, channel, reduce = np.array(rows, dtype=np.int64).T
        return step(src, dst, chunk, span=span, channel=channel, reduce=reduce.astype(np.bool_))

    def _order(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Pairs of transfers of which the first comes before the other one, or no later than it."""
        strict: list[tuple[int, int]] = []
        weak: list[tuple[int, int]] = []
        last: dict[tuple[int, int, int], int] = {}
        for number, one in enumerate(self.transfers):
            writes = self.writes.get((one.src, one.chunk), [])
            if one.sent:
                strict.append((writes[one.sent - 1], number))
            weak += [(number, later) for later in writes[one.sent : one.sent + 1]]
            connection = one.src, one.dst, one.channel
            if connection in last:
                weak.append((last[connection], number))
            last[connection] = number
        for writes in self.writes.values():
            strict += pairwise(writes)
        return strict, weak

    def _run(self) -> None:
        """Go on with every block as long as any can."""
        blocks = [(rank, number) for rank, some in enumerate(self.algorithm.blocks) for number in some]
        moved = True
        while moved:
            moved = False
            for rank, number in blocks:
                block = self.algorithm.blocks[rank][number]
                while (place := self._done[rank][number]) < len(block.steps):
                    if not self._may(rank, block, block.steps[place]):
                        break
                    self._go(rank, block, block.steps[place])
                    self._done[rank][number] += 1
                    moved = True
        for rank, number in blocks:
            block, place = self.algorithm.blocks[rank][number], self._done[rank][number]
            if place < len(block.steps):
                raise self._wrong(
                    block.steps[place], f"gpu {rank}, thread block {number} waits here for ever"
                )
        for (src, dst, channel), left in self._links.items():
            if left:
                raise FormatError(
                    f"{self.algorithm.file}: gpu {src} sends {len(left)} messages more to gpu {dst} on "
                    f"channel {channel} than are received"
                )

    def _may(self, rank: int, block: Block, now: Step) -> bool:
        if now.after and self._done[rank][now.after[0]] <= now.after[1]:
            return False
        return now.type not in RECEIVES or bool(self._links.get((block.recv, rank, block.channel)))

    def _go(self, rank: int, block: Block, now: Step) -> None:
        came: list[int] = []
        if now.type in RECEIVES:
            came = self._links[block.recv, rank, block.channel].popleft()
            if len(came) != now.count:
                raise self._wrong(now, f"{now.count} chunks are received, and {len(came)} were sent")
        self._messages += 1
        sent = []
        for number in range(0 if now.type == "nop" else now.count):
            source, target = (
                self._slot(rank, (buffer, first + number)) for buffer, first in (now.source, now.target)
            )
            held = self._step(rank, now, source, target, came[number] if came else None)
            if now.type in SENDS:
                sent.append(self._send(rank, block, now, held))
        if now.type in SENDS:
            self._links.setdefault((rank, block.send, block.channel), deque()).append(sent)

    def _step(self, rank: int, now: Step, source: Slot, target: Slot, came: int | None) -> Held:
        """Carry out a step for one chunk; what it leaves, or passes on."""
        memory = self.memory[rank]
        if now.type in ("r", "rcs"):
            assert came is not None
            memory[target] = self._receive(rank, came)
            return memory[target]
        held = memory.get(source)
        if held is None:
            raise self._wrong(
                now, f"gpu {rank} reads chunk {source[1]} of {source[0]}, where nothing was written"
            )
        if came is not None:
            held = self._add(rank, now, held, came)
        elif now.type == "re":
            other = memory.get(target)
            if other is None or (held.came is None) == (other.came is None):
                raise self._wrong(now, "it adds what was not received, which no schedule has")
            own, new = (held, other) if held.came is None else (other, held)
            assert new.came is not None
            held = self._add(rank, now, own, new.came)
        if now.type not in ("s", "rrs"):
            memory[target] = held
        return held

    def _receive(self, rank: int, came: int) -> Held:
        """In place of the rank's part where it has all that this had, else beside it, to be added."""
        one = self.transfers[came]
        mine = self.parts[rank].get(one.chunk, 0)
        if mine & ~one.contributions:
            return Held(one.chunk, one.contributions, came)
        self._write(rank, came, one.contributions, reduce=False)
        return Held(one.chunk, one.contributions)

    def _add(self, rank: int, now: Step, own: Held, came: int) -> Held:
        one = self.transfers[came]
        if own.chunk != one.chunk:
            raise self._wrong(now, f"chunk {one.chunk} is added to chunk {own.chunk}")
        self._check_current(rank, now, own)
        if own.contributions & one.contributions:
            raise self._wrong(now, f"a contribution to chunk {one.chunk} is added a second time")
        self._write(rank, came, own.contributions | one.contributions, reduce=True)
        return Held(one.chunk, own.contributions | one.contributions)

    def _write(self, rank: int, came: int, contributions: int, *, reduce: bool) -> None:
        chunk = self.transfers[came].chunk
        self.parts[rank][chunk] = contributions
        self.reduce[came] = reduce
        self.writes.setdefault((rank, chunk), []).append(came)

    def _send(self, rank: int, block: Block, now: Step, held: Held) -> int:
        self._check_current(rank, now, held)
        writes = len(self.writes.get((rank, held.chunk), ()))
        self.transfers.append(
            Transfer(self._messages, rank, block.send, block.channel, held.chunk, writes, held.contributions)
        )
        return len(self.transfers) - 1

    def _check_current(self, rank: int, now: Step, held: Held) -> None:
        """Refuse what is not the rank's one part of its chunk."""
        if held.came is not None or held.contributions != self.parts[rank][held.chunk]:
            raise self._wrong(
                now, f"gpu {rank} has two copies of chunk {held.chunk}, of which this one is no schedule's"
            )

    def _check_end(self) -> None:
        """Refuse a file that leaves its outputs without what its collective promises."""
        for rank in range(self.algorithm.ranks):
            for number, chunk in enumerate(self._chunks(self.collective.blocks_after(rank))):
                held = self.memory[rank].get(self._slot(rank, ("o", number)))
                whole = self.collective.contributors(chunk // self.algorithm.per_block)
                if held is None or held[:2] != (chunk, whole):
                    raise FormatError(
                        f"{self.algorithm.file}: at the end chunk {number} of gpu {rank}'s output is not "
                        f"what {self.algorithm.kind} promises"
                    )
        unused = next((one for number, one in enumerate(self.transfers) if number not in self.reduce), None)
        if unused:
            raise FormatError(
                f"{self.algorithm.file}: gpu {unused.dst} receives chunk {unused.chunk} from {unused.src} "
                "and does nothing with it"
            )

    def _chunks(self, blocks: range) -> Iterator[int]:
        """The chunks of some parts of the data, in order."""
        per_block = self.algorithm.per_block
        return (block * per_block + place for block in blocks for place in range(per_block))

    def _slot(self, rank: int, slot: Slot) -> Slot:
        """A slot's one name: in place input and output have cells in common."""
        buffer, number = slot
        if not self.algorithm.aliased or buffer == "s":
            return slot
        first = rank * self.algorithm.per_block
        match self.algorithm.kind:
            case "all_gather" | "gather":
                return "o", number + (first if buffer == "i" else 0)
            case "reduce_scatter" | "scatter":
                return "i", number + (first if buffer == "o" else 0)
        return "i", number

    def _wrong(self, now: Step, message: str) -> FormatError:
        return self.algorithm.wrong(now.line, message)
