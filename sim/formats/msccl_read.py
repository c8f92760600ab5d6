"""MSCCL's XML as its steps, each with its line; files that the runtime would refuse are refused here."""

from dataclasses import dataclass

from ringside.sim.collective import MAX_SPACE
from ringside.sim.formats import FormatError
from ringside.sim.formats.msccl_write import COLLECTIVES
from ringside.topologies.importers.elements import Element, XmlSource, parse

SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVES = frozenset({"r", "rcs", "rrc", "rrs", "rrcs"})
TYPES = SENDS | RECEIVES | {"cpy", "re", "nop"}
READS = TYPES - {"r", "rcs", "nop"}
"""Steps that read their source; ``re`` reads its target, too."""
WRITES = TYPES - {"s", "rrs", "nop"}

SLOTS = {"Simple": 2, "LL128": 8, "LL": 8}
"""Messages that may wait on a connection: NCCL_STEPS, of which Simple uses half each (MSCCL_CHUNKSTEPS)."""

MAX_RANKS = 4096
MAX_CHUNKS = 1_000_000
"""Maximum GPUs, and chunks of one buffer, that are read."""

Slot = tuple[str, int]
"""A chunk of a buffer: ``i``, ``o`` or ``s``, and its number."""


@dataclass(frozen=True, slots=True)
class MscclStep:
    """The next action of a thread block; ``after`` names a block and a step of the same GPU."""

    type: str
    source: Slot
    target: Slot
    count: int
    after: tuple[int, int] | None
    tells: bool
    """Whether its end is signalled to steps that wait for it, or for a step before it; no ``nop`` signals."""
    line: int


@dataclass(frozen=True, slots=True)
class ThreadBlock:
    """A thread block: its destination and its source, -1 for none, and its channel."""

    send: int
    recv: int
    channel: int
    steps: tuple[MscclStep, ...]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One file: ``per_block`` chunks are one part of the data.

    ``in_place`` are the ways in which it may be called, ``sizes`` the least and the most bytes.
    """

    name: str
    kind: str
    ranks: int
    per_block: int
    in_place: tuple[bool, ...]
    slots: int
    sizes: tuple[int, int | None]
    blocks: tuple[dict[int, ThreadBlock], ...]
    file: str

    def cell(self, rank: int, slot: Slot, *, in_place: bool) -> Slot:
        """Return a slot's canonical name: in place input and output have cells in common."""
        buffer, number = slot
        if not in_place or buffer == "s":
            return slot
        first = rank * self.per_block
        match self.kind:
            case "all_gather" | "gather":
                return "o", number + (first if buffer == "i" else 0)
            case "reduce_scatter" | "scatter":
                return "i", number + (first if buffer == "o" else 0)
        return "i", number

    def wrong(self, line: int, message: str) -> FormatError:
        """Return an error with its line."""
        return FormatError(f"{self.file}, line {line}: {message}")


def loads(text: str, name: str) -> Algorithm:
    """Return the algorithm of a text; ``name`` is its name in errors."""
    advice = "MSCCL's XML is algo, gpu, tb, step"
    algo = parse(text, XmlSource(name, advice, FormatError), "algo")
    ranks = _whole(algo, "ngpus", 1, MAX_RANKS)
    kinds = {word: kind for kind, word in COLLECTIVES.items()}
    kind = kinds[algo.one_of("coll", tuple(kinds))]
    per_block = _whole(algo, "nchunksperloop", 1, MAX_CHUNKS)
    if kind in ("all_gather", "reduce_scatter", "all_to_all"):
        if per_block % ranks:
            raise algo.complaint(f"nchunksperloop {per_block} is not a multiple of {ranks} GPUs")
        per_block //= ranks
    protocol = algo.one_of("proto", tuple(SLOTS)) if "proto" in algo.attributes else "Simple"
    least, most = (
        _whole(algo, name, 0, MAX_SPACE) if name in algo.attributes else 0
        for name in ("minBytes", "maxBytes")
    )
    may_alias = algo.attributes.get("inplace") == "1"
    may_differ = algo.attributes.get("outofplace", "0") == "1" or not may_alias
    in_place = (False,) * may_differ + (True,) * may_alias
    gpus = {}
    for gpu in algo.children:
        if gpu.tag != "gpu":
            raise gpu.complaint(f"{gpu.tag} in algo")
        number = _whole(gpu, "id", 0, ranks - 1)
        if number in gpus:
            raise gpu.complaint(f"gpu {number} is defined a second time")
        gpus[number] = _blocks(gpu, number, ranks)
    missing = [number for number in range(ranks) if number not in gpus]
    if missing:
        raise algo.complaint(f"ngpus is {ranks}, but there is no gpu {missing[0]}")
    blocks = tuple(gpus[number] for number in range(ranks))
    return Algorithm(
        algo.attributes.get("name", name),
        kind,
        ranks,
        per_block,
        in_place,
        SLOTS[protocol],
        (least, most or None),
        blocks,
        name,
    )


def _blocks(gpu: Element, number: int, ranks: int) -> dict[int, ThreadBlock]:
    sizes = {buffer: _whole(gpu, f"{buffer}_chunks", 0, MAX_CHUNKS) for buffer in "ios"}
    blocks: dict[int, ThreadBlock] = {}
    ends: set[tuple[str, int, int]] = set()
    for tb in gpu.children:
        if tb.tag != "tb":
            raise tb.complaint(f"{tb.tag} in gpu")
        one = _whole(tb, "id", 0, MAX_CHUNKS)
        if one in blocks:
            raise tb.complaint(f"thread block {one} is defined a second time")
        send, recv = (_whole(tb, way, -1, ranks - 1) for way in ("send", "recv"))
        channel = _whole(tb, "chan", 0, MAX_CHUNKS)
        if number in (send, recv):
            raise tb.complaint(f"gpu {number} sends to itself")
        for end in (("send to", send, channel), ("receive from", recv, channel)):
            if end[1] >= 0 and end in ends:
                raise tb.complaint(f"two thread blocks {end[0]} gpu {end[1]} on channel {channel}")
            ends.add(end)
        steps = tuple(_step(step, place, sizes, (send, recv)) for place, step in enumerate(tb.children))
        blocks[one] = ThreadBlock(send, recv, channel, steps)
    for tb, block in zip(gpu.children, blocks.values(), strict=True):
        for step, element in zip(block.steps, tb.children, strict=True):
            if step.after is None:
                continue
            one, last = step.after
            if one not in blocks or last >= len(blocks[one].steps):
                raise element.complaint(f"it waits for step {last} of thread block {one}, which is not there")
            if not any(other.tells for other in blocks[one].steps[last:]):
                raise element.complaint(
                    f"it waits for step {last} of thread block {one}, which has no hasdep of 1 from there on"
                )
    return blocks


def _step(element: Element, place: int, sizes: dict[str, int], peers: tuple[int, int]) -> MscclStep:
    if element.tag != "step":
        raise element.complaint(f"{element.tag} in tb")
    if _whole(element, "s", 0, MAX_CHUNKS) != place:
        raise element.complaint(f"s is {element.attributes['s']}, but it is step {place} of its thread block")
    kind = element.one_of("type", tuple(sorted(TYPES)))
    count = _whole(element, "cnt", 0, MAX_CHUNKS)
    slots = []
    for end in ("src", "dst"):
        buffer = element.one_of(f"{end}buf", ("i", "o", "s"))
        slots.append((buffer, _whole(element, f"{end}off", -1, MAX_CHUNKS)))
    for (buffer, first), used in zip(slots, (kind in READS, kind in WRITES), strict=True):
        if used and not 0 <= first <= sizes[buffer] - count:
            raise element.complaint(
                f"chunks {first} to {first + count - 1} of {buffer}, which has {sizes[buffer]}"
            )
    (read, first), (written, start) = slots
    if kind in READS & WRITES and read == written and 0 < abs(first - start) < count:
        raise element.complaint(
            f"it reads chunks {first} to {first + count - 1} of {read} and writes {start} to "
            f"{start + count - 1} at once"
        )
    for way, peer, kinds in zip(("send", "recv"), peers, (SENDS, RECEIVES), strict=True):
        if kind in kinds and peer < 0:
            raise element.complaint(f"{kind} in a thread block whose {way} is -1")
    block, step = _whole(element, "depid", -1, MAX_CHUNKS), _whole(element, "deps", -1, MAX_CHUNKS)
    if block >= 0 > step:
        raise element.complaint(f"depid is {block}, but deps -1")
    after = (block, step) if block >= 0 else None
    # the runtime moves a nop's wait to the next step, and ignores the rest of it
    tells = _whole(element, "hasdep", 0, 1) == 1 and kind != "nop"
    return MscclStep(kind, slots[0], slots[1], count, after, tells, element.line)


def _whole(element: Element, name: str, least: int, most: int) -> int:
    """Return a required attribute, a whole number of ``least`` to ``most``."""
    text = element.text(name)
    try:
        number = int(text) if len(text) < 20 else most + 1
    except ValueError:
        number = most + 1
    if not least <= number <= most:
        raise element.complaint(f"{name} is {text[:30]!r}; allowed: {least} to {most}")
    return number
