"""Files as msccl-tools writes them: an algorithm's copies and sums become steps with dependencies.

By the language's semantics (github.com/microsoft/msccl-tools, MIT): an operation depends on the last writer
of what it reads, and on the last reader or writer of what it writes. The algorithms are those of its
examples.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise

PROTOCOLS = ("Simple", "LL", "LL128")


@dataclass
class Step:
    type: str
    source: tuple[str, int]
    target: tuple[str, int]
    count: int
    after: dict[int, int]
    tells: bool = False


@dataclass
class Gpu:
    """Thread blocks by what they are for; of each cell the last step that wrote it and those that read it."""

    blocks: dict[tuple, list[Step]] = field(default_factory=dict)
    peers: dict[tuple, list[int]] = field(default_factory=dict)
    written: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    read: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)


class File:
    """Operations become steps one by one; ``joint`` blocks send and receive, others do one of both."""

    def __init__(self, kind, ranks, chunks, *, in_place, protocol="LL", joint=False, fused=False):
        self.kind, self.ranks, self.chunks, self.in_place = kind, ranks, chunks, in_place
        self.protocol, self.joint, self.fused = protocol, joint, fused
        self.gpus = [Gpu() for _ in range(ranks)]

    def copy(self, source, target, count=1, channel=0):
        """Copy between ``source`` and ``target``, each a rank, a buffer and a place."""
        self._move(source, target, count, channel, "r", "cpy")

    def add(self, source, target, count=1, channel=0):
        self._move(source, target, count, channel, "rrc", "re")

    def _move(self, source, target, count, channel, received, local):
        (src, *here), (dst, *there) = source, target
        if src == dst:
            self._step(src, ("local", channel), local, tuple(here), tuple(there), count)
            return
        if not (self.fused and self._pass_on(src, dst, tuple(here), count, channel)):
            self._step(src, self._block(src, 0, dst, channel), "s", tuple(here), tuple(there), count)
        block = self._block(dst, 1, src, channel)
        self._step(dst, block, received, tuple(there), tuple(there), count)

    def _block(self, rank, way, peer, channel):
        """Return the thread block of an end of a connection."""
        blocks = self.gpus[rank].peers
        for key, peers in blocks.items():
            if peers[way] == peer and key[1] == channel:
                return key
        key = (peer if self.joint else (way, peer), channel)
        blocks.setdefault(key, [-1, -1])[way] = peer
        return key

    def _pass_on(self, src, dst, here, count, channel):
        """Make a receiving step also send its data on, if possible."""
        gpu = self.gpus[src]
        if here not in gpu.written:
            return False
        number, place = gpu.written[here]
        key = list(gpu.blocks)[number]
        step = gpu.blocks[key][place]
        last = place == len(gpu.blocks[key]) - 1
        alike = step.type in ("r", "rrc") and (step.target, step.count) == (here, count)
        taken = any(
            peers[0] == dst and other[1] == channel for other, peers in gpu.peers.items() if other != key
        )
        if taken or not (last and alike and key[1] == channel and gpu.peers[key][0] in (-1, dst)):
            return False
        gpu.peers[key][0] = dst
        step.type = {"r": "rcs", "rrc": "rrcs"}[step.type]
        return True

    def _step(self, rank, key, kind, source, target, count):
        gpu = self.gpus[rank]
        gpu.peers.setdefault(key, [-1, -1])
        steps = gpu.blocks.setdefault(key, [])
        number = list(gpu.blocks).index(key)
        after = {}

        def wait(*steps):
            for block, place in steps:
                if block != number:
                    after[block] = max(place, after.get(block, 0))

        reads = [(source[0], source[1] + n) for n in range(count)] if kind != "r" else []
        reads += [(target[0], target[1] + n) for n in range(count)] if kind == "re" else []
        writes = [(target[0], target[1] + n) for n in range(count)] if kind != "s" else []
        for cell in reads + writes:
            if cell in gpu.written:
                wait(gpu.written[cell])
        for cell in writes:
            wait(*gpu.read.get(cell, {}).items())
        for block, place in after.items():
            list(gpu.blocks.values())[block][place].tells = True
        # all but one of several waits are steps that do nothing
        *others, final = sorted(after.items()) or [None]
        steps += [Step("nop", ("i", -1), ("i", -1), 0, dict([other])) for other in others]
        steps.append(Step(kind, source, target, count, dict([final] if final else [])))
        for cell in reads:
            gpu.read.setdefault(cell, {})[number] = len(steps) - 1
        for cell in writes:
            gpu.written[cell] = number, len(steps) - 1
            gpu.read[cell] = {}

    def text(self):
        channels = {key[1] for gpu in self.gpus for key in gpu.blocks}
        lines = [
            f'<algo name="{self.kind}" proto="{self.protocol}" nchannels="{max(channels) + 1}" '
            f'nchunksperloop="{self.chunks}" ngpus="{self.ranks}" coll="{self.kind}" '
            f'inplace="{int(self.in_place)}" outofplace="{int(not self.in_place)}">'
        ]
        for rank, gpu in enumerate(self.gpus):
            lines.append(f'  <gpu id="{rank}" {self._sizes(gpu)}>')
            for number, (key, steps) in enumerate(gpu.blocks.items()):
                send, recv = gpu.peers[key]
                lines.append(f'    <tb id="{number}" send="{send}" recv="{recv}" chan="{key[1]}">')
                for place, one in enumerate(steps):
                    ((block, last),) = one.after.items() or (((-1, -1)),)
                    lines.append(
                        f'      <step s="{place}" type="{one.type}" srcbuf="{one.source[0]}" '
                        f'srcoff="{one.source[1]}" dstbuf="{one.target[0]}" dstoff="{one.target[1]}" '
                        f'cnt="{one.count}" depid="{block}" deps="{last}" hasdep="{int(one.tells)}"/>'
                    )
                lines.append("    </tb>")
            lines.append("  </gpu>")
        return "\n".join([*lines, "</algo>"]) + "\n"

    def _sizes(self, gpu):
        part = self.chunks // self.ranks
        whole = {
            "allreduce": (self.chunks, self.chunks), "allgather": (part, self.chunks),
            "reducescatter": (self.chunks, part), "alltoall": (self.chunks, self.chunks),
        }[self.kind]  # fmt: skip
        cells = {*gpu.read, *gpu.written}
        scratch = max((place + 1 for buffer, place in cells if buffer == "s"), default=0)
        return f'i_chunks="{whole[0]}" o_chunks="{whole[1]}" s_chunks="{scratch}"'


def ring(file, chance, channels=1):
    """Pass sums around once, and results a second time."""
    turns = [(chunk, chunk * channels // file.chunks) for chunk in range(file.chunks)]
    for chunk, channel in turns:
        here = [(chunk + place) % file.ranks for place in range(file.ranks)]
        for src, dst in pairwise(here):
            file.add((src, "i", chunk), (dst, "i", chunk), channel=channel)
        here = here[-1:] + here[:-1]
        for src, dst in pairwise(here):
            file.copy((src, "i", chunk), (dst, "i", chunk), channel=channel)


def tree(file, chance):
    """Sum along a random tree to its root, and send results back."""
    ranks = chance.sample(range(file.ranks), file.ranks)
    parents = [(ranks[n], ranks[chance.randrange(n)]) for n in range(1, file.ranks)]
    for first in range(0, file.chunks, 2):
        count = min(2, file.chunks - first)
        for child, parent in reversed(parents):
            file.add((child, "i", first), (parent, "i", first), count)
        for child, parent in parents:
            file.copy((parent, "i", first), (child, "i", first), count)


def hierarchical(file, chance, nodes=2):
    """Sum inside each node, by a ring between nodes, and distribute inside each node."""
    local = file.ranks // nodes
    for chunk in range(file.chunks):
        owner = chunk % local
        channel = chance.randrange(2)
        for node in range(nodes):
            others = [place for place in range(local) if place != owner]
            for place in chance.sample(others, len(others)):
                file.add(
                    (node * local + place, "i", chunk), (node * local + owner, "i", chunk), channel=channel
                )
        ring_ = [node * local + owner for node in chance.sample(range(nodes), nodes)]
        for src, dst in pairwise(ring_):
            file.add((src, "i", chunk), (dst, "i", chunk), channel=channel)
        ring_ = ring_[-1:] + ring_[:-1]
        for src, dst in pairwise(ring_):
            file.copy((src, "i", chunk), (dst, "i", chunk), channel=channel)
        for node in range(nodes):
            for place in range(local):
                if place != owner:
                    file.copy(
                        (node * local + owner, "i", chunk),
                        (node * local + place, "i", chunk),
                        channel=channel,
                    )


def halving_doubling(file, chance):
    """Halve between ever closer partners by way of scratch, then double back."""
    ranks, part = file.ranks, file.chunks // file.ranks
    spans = dict.fromkeys(range(ranks), (0, ranks))
    distance, rounds = ranks // 2, []
    while distance:
        rounds.append(distance)
        moves = []
        for rank in range(ranks):
            first, size = spans[rank]
            half = size // 2
            keep = first + (half if rank & distance else 0)
            give = first + (0 if rank & distance else half)
            moves.append((rank, rank ^ distance, give * part, half * part))
            spans[rank] = keep, half
        for src, dst, first, count in moves:
            file.copy((src, "i", first), (dst, "s", first), count)
        for _, dst, first, count in moves:
            file.add((dst, "s", first), (dst, "i", first), count)
        distance //= 2
    for distance in reversed(rounds):
        for rank in range(ranks):
            first, size = spans[rank]
            file.copy((rank, "i", first * part), (rank ^ distance, "i", first * part), size * part)
        spans = {rank: (min(spans[rank][0], spans[rank ^ distance][0]), 2 * spans[rank][1]) for rank in spans}


def recursive_doubling(file, chance):
    """Exchange sums of all data between partners by way of scratch."""
    distance = 1
    while distance < file.ranks:
        for rank in range(file.ranks):
            file.copy((rank, "i", 0), (rank ^ distance, "s", 0), file.chunks)
        for rank in range(file.ranks):
            file.add((rank, "s", 0), (rank, "i", 0), file.chunks)
        distance *= 2


def one_step(file, chance):
    """Build allreduce_1step: each rank sends all data to all others, which add them."""
    ranks, chunks = file.ranks, file.chunks
    for src in range(ranks):
        for dst in range(ranks):
            if src != dst:
                file.copy((src, "i", 0), (dst, "s", (src - (src > dst)) * chunks), chunks)
    for rank in range(ranks):
        for other in range(ranks - 1):
            for chunk in range(chunks):
                file.add((rank, "s", other * chunks + chunk), (rank, "i", chunk), channel=chunk)


def all_pairs(file, chance, *, by_tree=True):
    """Build allreduce_a100_allpairs (_v2: by a tree in scratch): each rank sums and distributes its part."""
    ranks = file.ranks
    part = file.chunks // ranks
    for src in range(ranks):
        for dst in range(ranks):
            if src != dst:
                file.copy((src, "i", dst * part), (dst, "s", (src - (src > dst)) * part), part)
    for rank in range(ranks):
        left = [("i", rank * part), *(("s", place * part) for place in range(ranks - 1))]
        while len(left) > 1:
            half = (len(left) + 1) // 2 if by_tree else len(left) - 1
            for place, (buffer, first) in enumerate(left[half:]):
                there = left[place if by_tree else 0]
                file.add((rank, buffer, first), (rank, *there), part, channel=place)
            left = left[:half]
    for src in range(ranks):
        for dst in range(ranks):
            if src != dst:
                file.copy((src, "i", src * part), (dst, "i", src * part), part)


def direct(file, chance):
    """Send each rank's part from every rank."""
    part = file.chunks // file.ranks
    for src in range(file.ranks):
        for dst in chance.sample(range(file.ranks), file.ranks):
            file.copy((src, "i", dst * part), (dst, "o", src * part), part, channel=(src + dst) % 2)


def two_step(file, chance, nodes=2):
    """Build alltoall_a100_two_step: data for another node pass the local GPU with the receiver's number."""
    local, part = file.ranks // nodes, file.chunks // file.ranks
    for there in range(nodes):
        for place in range(local):
            dst = there * local + place
            for here in range(nodes):
                for other in range(local):
                    src, relay = here * local + other, here * local + place
                    if here == there:
                        file.copy((src, "i", dst * part), (dst, "o", src * part), part)
                    else:
                        file.copy((src, "i", dst * part), (relay, "s", (there * local + other) * part), part)
                if here != there:
                    relay = here * local + place
                    file.copy(
                        (relay, "s", there * local * part), (dst, "o", here * local * part), local * part,
                        channel=1,
                    )  # fmt: skip


def gather_ring(file, chance):
    """Pass every part around; out of place each rank copies its own first."""
    part = file.chunks // file.ranks
    for rank in range(file.ranks):
        if not file.in_place:
            file.copy((rank, "i", 0), (rank, "o", rank * part), part)
    for rank in range(file.ranks):
        for place in range(file.ranks - 1):
            src, dst = (rank + place) % file.ranks, (rank + place + 1) % file.ranks
            file.copy((src, "o", rank * part), (dst, "o", rank * part), part)


def scatter_pairs(file, chance):
    """Send parts into scratch, where they are added."""
    ranks = file.ranks
    part = file.chunks // ranks
    for src in range(ranks):
        for dst in chance.sample(range(ranks), ranks):
            if src != dst:
                file.copy((src, "i", dst * part), (dst, "s", (src - (src > dst)) * part), part)
    for rank in range(ranks):
        file.copy((rank, "i", rank * part), (rank, "o", 0), part)
        for other in chance.sample(range(ranks - 1), ranks - 1):
            file.add((rank, "s", other * part), (rank, "o", 0), part, channel=other % 2)


ALGORITHMS = {
    "ring": ("allreduce", (3, 4, 5, 8), ring),
    "rings": ("allreduce", (4, 6), lambda file, chance: ring(file, chance, 2)),
    "tree": ("allreduce", (3, 5, 8), tree),
    "hierarchical": ("allreduce", (4, 6, 8), hierarchical),
    "hierarchical_4": ("allreduce", (8,), lambda file, chance: hierarchical(file, chance, 4)),
    "halving_doubling": ("allreduce", (2, 4, 8), halving_doubling),
    "recursive_doubling": ("allreduce", (2, 4, 8), recursive_doubling),
    "one_step": ("allreduce", (2, 3, 4), one_step),
    "all_pairs": ("allreduce", (3, 4, 8), lambda file, chance: all_pairs(file, chance, by_tree=False)),
    "all_pairs_v2": ("allreduce", (2, 4, 5, 8), all_pairs),
    "direct": ("alltoall", (2, 3, 6), direct),
    "two_step": ("alltoall", (4, 6, 8), two_step),
    "gather_ring": ("allgather", (2, 4, 7), gather_ring),
    "scatter_pairs": ("reducescatter", (2, 3, 5), scatter_pairs),
}


def made(name, chance):
    """Return a correct file of a named algorithm, otherwise random."""
    kind, counts, build = ALGORITHMS[name]
    ranks = chance.choice(counts)
    in_place = kind == "allreduce" or (kind == "allgather" and chance.random() < 0.5)
    joint = chance.random() < 0.5
    file = File(
        kind, ranks, ranks * chance.choice((1, 1, 2)), in_place=in_place, joint=joint,
        protocol=chance.choice(PROTOCOLS), fused=not joint and chance.random() < 0.5,
    )  # fmt: skip
    build(file, chance)
    return file.text()


def without_a_dependency(text, chance):
    """Return the file without one wait of one step, or an empty text if it has none."""
    lines = text.splitlines()
    waiting = [number for number, line in enumerate(lines) if re.search(r' depid="\d', line)]
    if not waiting:
        return None
    number = chance.choice(waiting)
    lines[number] = re.sub(r'depid="\d+" deps="\d+"', 'depid="-1" deps="-1"', lines[number])
    return "\n".join(lines) + "\n"
