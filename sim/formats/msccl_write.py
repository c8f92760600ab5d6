"""A schedule as the XML that the MSCCL runtime carries out: each GPU's thread blocks, step by step.

Each end of a connection becomes its own thread block, so that sending and receiving never wait for each other
in the order of one block. A rank's data stay in its input until something is received for them; from then on
they are in its output, or in scratch where the collective does not demand them there. So no input is changed,
and the same file serves in place, where input and output of a chunk are one.

A step depends on the step that received its chunks last: a send reads the data it wrote, and of two receives
that add to one chunk the later one waits. A receive waits for the sends of its chunks' earlier values. The
limits are those of github.com/microsoft/msccl, src/include/msccl.h, and of RCCL's parser.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np

from ringside.sim.formats import FormatError
from ringside.sim.proof import prove
from ringside.sim.schedule import Schedule, Transfer
from ringside.topologies.names import one_of

COLLECTIVES = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "all_to_all": "alltoall",
}
"""MSCCL's names of its collectives."""

MAX_STEPS = 256
"""Maximum steps of a thread block (MSCCL_MAX_NUM_STEPS)."""

MAX_BLOCKS = 216
"""Maximum thread blocks of a GPU (MSCCL_MAX_NUM_THREAD_BLOCKS)."""

MAX_PEERS = 32
"""Maximum connections of a GPU per channel, each way (MSCCL_MAX_NUM_THREAD_BLOCKS_PER_CHANNEL)."""

MAX_CHANNELS = 32
"""MAXCHANNELS."""

MAX_COUNT = 71
"""Maximum chunks of one step: fewer than MSCCL_MAX_COUNT."""

MAX_TRANSFERS = 1_000_000
"""Maximum transfers of a schedule that is written."""

PROTOCOLS = ("Simple", "LL128", "LL")
"""NCCL's protocols as the runtime spells them."""


class Place(NamedTuple):
    """A chunk's location on a GPU: input, output or scratch (``i``, ``o``, ``s``), and the place there."""

    buffer: str
    offset: int

    def next(self) -> "Place":
        """Return the place behind it."""
        return self if self.offset < 0 else Place(self.buffer, self.offset + 1)


class _Step(NamedTuple):
    """The next action of a thread block; ``after`` names the block and the step that must be over, if any."""

    type: str
    source: Place
    target: Place
    chunks: int
    after: tuple[int, int] | None


@dataclass(slots=True)
class _Block:
    """A thread block, with its destination or source rank."""

    send: int
    recv: int
    channel: int
    steps: list[_Step] = field(default_factory=list)


NOWHERE = Place("i", -1)


def dumps(plan: Schedule, protocol: str = "Simple") -> str:
    """Return the XML of a schedule; raise `FormatError` with the reason if MSCCL cannot express it."""
    _check(plan, protocol)
    channels = _channels(plan)
    gpus = [_Gpu(plan, rank, channels) for rank in range(plan.ranks)]
    for moved in plan.steps():
        transfers = list(moved.transfers())
        sources = [[gpus[one.src].held(chunk) for chunk in one.chunks] for one in transfers]
        pieces = [
            piece
            for transfer, held in zip(transfers, sources, strict=True)
            for piece in _pieces(gpus[transfer.dst], transfer, held)
        ]
        for piece in pieces:
            gpus[piece.connection[0]].send(piece)
        for piece in pieces:
            gpus[piece.connection[1]].receive(piece)
    for gpu in gpus:
        gpu.copy_own()
    return "\n".join(_lines(plan, gpus, 1 + max(channels.values(), default=0), protocol)) + "\n"


class _Held(NamedTuple):
    """A chunk's location on a GPU, and the step and block that received it, if any."""

    place: Place
    by: tuple[int, int] | None


class _Piece(NamedTuple):
    """Neighbouring chunks of one transfer that are adjacent at both ends."""

    connection: tuple[int, int, int]
    chunks: range
    source: Place
    sent: list[tuple[int, int]]
    """The steps that received them at the source."""
    own: Place | None
    """The target's data that are added to them, if any."""
    target: Place


class _Gpu:
    """One rank's thread blocks, and the locations of its chunks."""

    def __init__(self, plan: Schedule, rank: int, channels: dict[tuple[int, int, int], int]) -> None:
        self.plan = plan
        self.rank = rank
        self.blocks: list[_Block] = []
        self.scratch: dict[int, int] = {}
        self.needed: set[tuple[int, int]] = set()
        """Steps for which others wait."""
        self._channels = channels
        self._of_connection: dict[tuple[int, int, int], int] = {}
        self._written: set[int] = set()
        self._received: dict[int, tuple[int, int]] = {}
        """The last step that received each chunk."""
        self._sent: dict[int, list[tuple[int, int]]] = {}
        """The steps that have sent each chunk since."""
        collective, of_block = plan.collective, plan.chunks.of_block
        self.inputs = _numbered(of_block[block] for block in collective.blocks_before(rank))
        self.outputs = _numbered(of_block[block] for block in collective.blocks_after(rank))

    def held(self, chunk: int) -> _Held:
        """Return a chunk's current location."""
        place = self.target(chunk) if chunk in self._written else Place("i", self.inputs[chunk])
        return _Held(place, self._received.get(chunk))

    def expect(self, chunks: range) -> None:
        """Move chunks to where the rank receives them."""
        self._written.update(chunks)

    def target(self, chunk: int) -> Place:
        """Return where it receives a chunk."""
        if chunk in self.outputs:
            return Place("o", self.outputs[chunk])
        return Place("s", self.scratch.setdefault(chunk, len(self.scratch)))

    def send(self, piece: _Piece) -> None:
        """Send the data received last before the transfer's step."""
        block = self._block(piece.connection)
        step = self._add(block, "s", piece.source, piece.target, len(piece.chunks), piece.sent)
        for chunk in piece.chunks:
            self._sent.setdefault(chunk, []).append((block, step))

    def receive(self, piece: _Piece) -> None:
        """Receive after earlier receives, and add to them, and after the sends of their data."""
        block = self._block(piece.connection)
        kind, source = ("rrc", piece.own) if piece.own else ("r", piece.source)
        before = [self._received[chunk] for chunk in piece.chunks if chunk in self._received]
        before += [one for chunk in piece.chunks for one in self._sent.pop(chunk, ())]
        step = self._add(block, kind, source, piece.target, len(piece.chunks), before)
        self._received.update(dict.fromkeys(piece.chunks, (block, step)))

    def copy_own(self) -> None:
        """Copy into the output the rank's own data that it needs there."""
        own = [chunk for chunk in self.outputs if chunk not in self._received]
        for run in _runs(own, [(self.held(chunk).place, self.target(chunk)) for chunk in own]):
            self._add(
                self._block((-1, -1, 0)), "cpy", self.held(run[0]).place, self.target(run[0]), len(run), []
            )

    def _add(
        self,
        block: int,
        kind: str,
        source: Place,
        target: Place,
        count: int,
        after: Iterable[tuple[int, int]],
    ) -> int:
        """Append a step to a block, after others of the GPU; return its number.

        A step names one other that must be over; steps that do nothing before it name the rest.
        """
        last: dict[int, int] = {}
        for other, step in after:
            if other != block:
                last[other] = max(step, last.get(other, 0))
        self.needed.update(last.items())
        others = sorted(last.items())
        final = others.pop() if others else None
        steps = self.blocks[block].steps
        steps += [_Step("nop", NOWHERE, Place("o", -1), 0, other) for other in others]
        steps.append(_Step(kind, source, target, count, final))
        if len(steps) > MAX_STEPS:
            raise _refusal(
                self.plan,
                f"a thread block has more than {MAX_STEPS} steps; write a smaller size, of fewer chunks",
            )
        return len(steps) - 1

    def _block(self, connection: tuple[int, int, int]) -> int:
        """Return the thread block at this end of a connection."""
        if connection not in self._of_connection:
            src, dst, _ = connection
            send, recv = (dst, -1) if src == self.rank else (-1, src)
            self._of_connection[connection] = len(self.blocks)
            self.blocks.append(_Block(send, recv, self._channels.get(connection, 0)))
            if len(self.blocks) > MAX_BLOCKS:
                raise _refusal(
                    self.plan, f"a GPU has more than {MAX_BLOCKS} thread blocks; write fewer ranks"
                )
        return self._of_connection[connection]


def _numbered(blocks: Iterable[range]) -> dict[int, int]:
    """Return the place of each chunk among those of some blocks."""
    return {chunk: place for place, chunk in enumerate(chunk for block in blocks for chunk in block)}


def _pieces(target: _Gpu, transfer: Transfer, held: list[_Held]) -> Iterator[_Piece]:
    """Split a transfer where its chunks are not adjacent."""
    src, dst, chunks, channel, reduce = transfer
    places = [(one.place, target.target(chunk)) for chunk, one in zip(chunks, held, strict=True)]
    own = [target.held(chunk).place for chunk in chunks] if reduce else [NOWHERE] * len(chunks)
    for run in _runs(chunks, [(*pair, there) for pair, there in zip(places, own, strict=True)]):
        first = run[0] - chunks[0]
        sent = [one.by for one in held[first : first + len(run)] if one.by]
        source, there = places[first]
        yield _Piece((src, dst, channel), run, source, sent, own[first] if reduce else None, there)
    target.expect(chunks)


def _runs(chunks: Iterable[int], places: Iterable[tuple[Place, ...]]) -> Iterator[range]:
    """Return runs of chunks that are adjacent everywhere, within the limit of one step."""
    run: list[int] = []
    wanted: tuple[Place, ...] = ()
    for chunk, here in zip(chunks, places, strict=True):
        if run and (chunk != run[-1] + 1 or here != wanted or len(run) == MAX_COUNT):
            yield range(run[0], run[-1] + 1)
            run = []
        run.append(chunk)
        wanted = tuple(place.next() for place in here)
    if run:
        yield range(run[0], run[-1] + 1)


def _channels(plan: Schedule) -> dict[tuple[int, int, int], int]:
    """Return each connection's channel: the first from its own on where neither GPU has too many."""
    channels: dict[tuple[int, int, int], int] = {}
    busy: Counter[tuple[str, int, int]] = Counter()
    pairs: set[tuple[int, int, int]] = set()
    for connection in plan.connections():
        src, dst, channel = connection
        while (src, dst, channel) in pairs or MAX_PEERS in (busy["s", src, channel], busy["r", dst, channel]):
            channel += 1
        if channel >= MAX_CHANNELS:
            raise _refusal(plan, f"it needs more than {MAX_CHANNELS} channels; write fewer ranks")
        pairs.add((src, dst, channel))
        busy.update((("s", src, channel), ("r", dst, channel)))
        channels[connection] = channel
    return channels


def _check(plan: Schedule, protocol: str) -> None:
    """Refuse schedules that MSCCL cannot express, or that are not correct in every order."""
    kind = plan.collective.kind
    if protocol not in PROTOCOLS:
        raise FormatError(f"{protocol!r} is not a protocol of MSCCL; write {one_of(PROTOCOLS, protocol)}")
    if kind not in COLLECTIVES:
        raise _refusal(plan, f"MSCCL has no {kind}; it has {', '.join(COLLECTIVES)}")
    if plan.switches:
        raise _refusal(plan, "it adds in switches, but MSCCL has steps of GPUs only; write another algorithm")
    if plan.collective.root:
        raise _refusal(
            plan, f"its root is rank {plan.collective.root}, but the file cannot name one; write root 0"
        )
    if plan.longer_than(MAX_TRANSFERS):
        raise _refusal(
            plan, f"it has more than {MAX_TRANSFERS:,} transfers; write a smaller size or fewer ranks"
        )
    if len(set(map(len, plan.chunks.of_block.values()))) > 1:
        raise _refusal(plan, "its parts have different numbers of chunks, but MSCCL needs the same for all")
    _, firsts = np.unique(plan.chunks.block, return_index=True)
    sizes = np.diff(np.append(plan.chunks.bounds[firsts], plan.collective.space))
    if np.ptp(sizes) > plan.collective.itemsize:
        raise _refusal(plan, "its parts differ in size, but MSCCL cuts all alike; write equal parts")
    prove(plan)


def _lines(plan: Schedule, gpus: list[_Gpu], channels: int, protocol: str) -> Iterator[str]:
    kind, per_block = plan.collective.kind, len(plan.chunks.of_block[0])
    # the runtime counts one rank's part where the data consist of all ranks', except gather and scatter
    whole = len(plan.chunks) if kind in ("all_gather", "reduce_scatter") else per_block
    whole = plan.ranks * per_block if kind == "all_to_all" else whole
    name = plan.algorithm.removesuffix(".xml").replace(" ", "_")
    name += "" if name.endswith(kind) else f"_{kind}"
    in_place = int(kind != "all_to_all")
    yield (
        f'<algo name={quoteattr(name)} proto="{protocol}" nchannels="{channels}" nchunksperloop="{whole}" '
        f'ngpus="{plan.ranks}" coll="{COLLECTIVES[kind]}" inplace="{in_place}" outofplace="1" '
        'minBytes="0" maxBytes="0">'
    )
    for gpu in gpus:
        yield (
            f'  <gpu id="{gpu.rank}" i_chunks="{len(gpu.inputs)}" o_chunks="{len(gpu.outputs)}" '
            f's_chunks="{len(gpu.scratch)}">'
        )
        for number, block in enumerate(gpu.blocks):
            yield f'    <tb id="{number}" send="{block.send}" recv="{block.recv}" chan="{block.channel}">'
            for place, step in enumerate(block.steps):
                before, last = step.after or (-1, -1)
                yield (
                    f'      <step s="{place}" type="{step.type}" srcbuf="{step.source.buffer}" '
                    f'srcoff="{step.source.offset}" dstbuf="{step.target.buffer}" '
                    f'dstoff="{step.target.offset}" cnt="{step.chunks}" depid="{before}" deps="{last}" '
                    f'hasdep="{int((number, place) in gpu.needed)}"/>'
                )
            yield "    </tb>"
        yield "  </gpu>"
    yield "</algo>"


def _refusal(plan: Schedule, why: str) -> FormatError:
    return FormatError(
        f"{plan.algorithm} {plan.collective.kind} on {plan.ranks} ranks cannot be written for MSCCL: {why}"
    )
