"""MSCCL's XML as its steps, each with its line; what the runtime would refuse is refused here."""

from dataclasses import dataclass

from sim.formats import FormatError
from sim.formats.msccl_write import COLLECTIVES
from topologies.importers.elements import Element, Source, parse

SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVES = frozenset({"r", "rcs", "rrc", "rrs", "rrcs"})
TYPES = SENDS | RECEIVES | {"cpy", "re", "nop"}

MAX_RANKS = 4096
MAX_CHUNKS = 1_000_000
"""GPUs, and chunks of one buffer, that are read."""

Slot = tuple[str, int]
"""A chunk of a buffer: ``i``, ``o`` or ``s``, and its number."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a thread block does next; ``after`` names a block and a step of the same GPU."""

    type: str
    source: Slot
    target: Slot
    count: int
    after: tuple[int, int] | None
    tells: bool
    """Whether others that wait for it, or for a step before it, are told when it is over."""
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block: to whom it sends and from whom it receives, -1 for nobody, and on which channel."""

    send: int
    recv: int
    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One file. ``per_block`` chunks are one part of the data; ``aliased`` where it only works in place."""

    name: str
    kind: str
    ranks: int
    per_block: int
    aliased: bool
    blocks: tuple[dict[int, Block], ...]
    file: str

    def wrong(self, line: int, message: str) -> FormatError:
        """What is wrong on a line."""
        return FormatError(f"{self.file}, line {line}: {message}")


def loads(text: str, name: str) -> Algorithm:
    """The algorithm of a text; ``name`` is what complaints call it."""
    advice = "MSCCL's XML is algo, gpu, tb, step"
    algo = parse(text, Source(name, advice, FormatError), "algo")
    ranks = _whole(algo, "ngpus", 1, MAX_RANKS)
    kinds = {word: kind for kind, word in COLLECTIVES.items()}
    kind = kinds[algo.one_of("coll", tuple(kinds))]
    per_block = _whole(algo, "nchunksperloop", 1, MAX_CHUNKS)
    if kind in ("all_gather", "reduce_scatter", "all_to_all"):
        if per_block % ranks:
            raise algo.complaint(f"nchunksperloop {per_block} is no multiple of {ranks} GPUs")
        per_block //= ranks
    aliased = algo.attributes.get("outofplace", "0") == "0" and algo.attributes.get("inplace") == "1"
    gpus = {}
    for gpu in algo.children:
        if gpu.tag != "gpu":
            raise gpu.complaint(f"{gpu.tag} in algo")
        number = _whole(gpu, "id", 0, ranks - 1)
        if number in gpus:
            raise gpu.complaint(f"gpu {number} stands here a second time")
        gpus[number] = _blocks(gpu, number, ranks)
    missing = [number for number in range(ranks) if number not in gpus]
    if missing:
        raise algo.complaint(f"ngpus is {ranks}, but there is no gpu {missing[0]}")
    blocks = tuple(gpus[number] for number in range(ranks))
    return Algorithm(algo.attributes.get("name", name), kind, ranks, per_block, aliased, blocks, name)


def _blocks(gpu: Element, number: int, ranks: int) -> dict[int, Block]:
    sizes = {buffer: _whole(gpu, f"{buffer}_chunks", 0, MAX_CHUNKS) for buffer in "ios"}
    found: dict[int, Block] = {}
    ends: set[tuple[str, int, int]] = set()
    for tb in gpu.children:
        if tb.tag != "tb":
            raise tb.complaint(f"{tb.tag} in gpu")
        one = _whole(tb, "id", 0, MAX_CHUNKS)
        if one in found:
            raise tb.complaint(f"thread block {one} stands here a second time")
        send, recv = (_whole(tb, way, -1, ranks - 1) for way in ("send", "recv"))
        channel = _whole(tb, "chan", 0, MAX_CHUNKS)
        if number in (send, recv):
            raise tb.complaint(f"gpu {number} sends to itself")
        for end in (("send to", send, channel), ("receive from", recv, channel)):
            if end[1] >= 0 and end in ends:
                raise tb.complaint(f"two thread blocks {end[0]} gpu {end[1]} on channel {channel}")
            ends.add(end)
        steps = tuple(_step(step, place, sizes, (send, recv)) for place, step in enumerate(tb.children))
        found[one] = Block(send, recv, channel, steps)
    for tb, block in zip(gpu.children, found.values(), strict=True):
        for step, element in zip(block.steps, tb.children, strict=True):
            if step.after is None:
                continue
            one, last = step.after
            if one not in found or last >= len(found[one].steps):
                raise element.complaint(f"it waits for step {last} of thread block {one}, which is not there")
            if not any(other.tells for other in found[one].steps[last:]):
                raise element.complaint(
                    f"it waits for step {last} of thread block {one}, which has no hasdep of 1 from there on"
                )
    return found


def _step(element: Element, place: int, sizes: dict[str, int], peers: tuple[int, int]) -> Step:
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
    reads, writes = kind not in ("r", "rcs", "nop"), kind not in ("s", "rrs", "nop")
    for (buffer, first), used in zip(slots, (reads, writes), strict=True):
        if used and not 0 <= first <= sizes[buffer] - count:
            raise element.complaint(
                f"chunks {first} to {first + count - 1} of {buffer}, which has {sizes[buffer]}"
            )
    for way, peer, kinds in zip(("send", "recv"), peers, (SENDS, RECEIVES), strict=True):
        if kind in kinds and peer < 0:
            raise element.complaint(f"{kind} in a thread block whose {way} is -1")
    block, step = _whole(element, "depid", -1, MAX_CHUNKS), _whole(element, "deps", -1, MAX_CHUNKS)
    if block >= 0 > step:
        raise element.complaint(f"depid is {block}, but deps -1")
    after = (block, step) if block >= 0 else None
    tells = _whole(element, "hasdep", 0, 1) == 1
    return Step(kind, slots[0], slots[1], count, after, tells, element.line)


def _whole(element: Element, name: str, least: int, most: int) -> int:
    """An attribute that must be a whole number of ``least`` to ``most``."""
    text = element.text(name)
    try:
        number = int(text) if len(text) < 12 else most + 1
    except ValueError:
        number = most + 1
    if not least <= number <= most:
        raise element.complaint(f"{name} is {text[:30]!r}; allowed: {least} to {most}")
    return number
