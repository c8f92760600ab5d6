"""An interpreter of MSCCL's XML with integers for data, in a random legal order.

By the format's semantics alone (github.com/microsoft/msccl, msccl_interpreter.h): it shares no code with the
writer. A thread block goes step by step, each step first reads and some time later writes. A connection, from
a sending to a receiving block on one channel, has a few slots: a send waits for a free one, a receive for a
full one. A step waits until another block has passed the step that it names.
"""

import random
import xml.etree.ElementTree as ET
from collections import deque
from dataclasses import dataclass, field

SENDS = {"s", "rcs", "rrs", "rrcs"}
RECEIVES = {"r", "rcs", "rrc", "rrs", "rrcs"}
REDUCES = {"rrc", "rrs", "rrcs"}
WRITES = {"r", "rcs", "rrc", "rrcs", "cpy", "re"}


class StuckError(Exception):
    """No thread block can go on."""


@dataclass
class Block:
    gpu: int
    steps: list[dict[str, str]]
    send: int
    recv: int
    channel: int
    at: int = 0
    passed: int = -1
    waits: bool = False
    begun: list[int] | None = field(default=None)


class Machine:
    """The GPUs of one file; ``memory[gpu][buffer]`` are numbers, one a chunk, ``None`` what nobody wrote."""

    def __init__(self, text, *, in_place=False, slots=1):
        algo = ET.fromstring(text)
        self.attributes = dict(algo.attrib)
        self.kind, self.ranks = algo.get("coll"), int(algo.get("ngpus"))
        self.per_loop = int(algo.get("nchunksperloop"))
        self.in_place, self.slots = in_place, slots
        assert int(algo.get("inplace" if in_place else "outofplace"))
        self.memory, self.blocks, self.links, self.ends = [], {}, {}, {}
        self.of_gpu = [[] for _ in range(self.ranks)]
        gpus = algo.findall("gpu")
        assert [int(gpu.get("id")) for gpu in gpus] == list(range(self.ranks))
        for rank, gpu in enumerate(gpus):
            self.memory.append(self._buffers(rank, gpu))
            ends = set()
            for tb in gpu.findall("tb"):
                number, send, recv, channel = (int(tb.get(key)) for key in ("id", "send", "recv", "chan"))
                steps = [step.attrib for step in tb.findall("step")]
                assert [int(step["s"]) for step in steps] == list(range(len(steps)))
                assert rank not in (send, recv)
                assert 0 <= channel < int(algo.get("nchannels"))
                for end in (("s", send, channel), ("r", recv, channel)):
                    assert end[1] == -1 or end not in ends, "two blocks have one end of a connection"
                    ends.add(end)
                assert (rank, number) not in self.blocks
                made = self.blocks[rank, number] = Block(rank, steps, send, recv, channel)
                self.of_gpu[rank].append(made)
                self.ends["s", rank, send, channel] = self.ends["r", recv, rank, channel] = made

    def _buffers(self, rank, gpu):
        """Return input, output and scratch; in place the first two share memory."""
        size = {key: int(gpu.get(f"{key}_chunks")) for key in "ios"}
        whole = [None] * self.whole()
        per = self.whole() // self.ranks if self.parted() else 0
        if not self.in_place:
            return {key: View([None] * size[key], 0, size[key]) for key in "ios"}
        ours = ("i", rank * per), ("o", rank * per)
        part = {"allgather": ours[0], "gather": ours[0], "reducescatter": ours[1], "scatter": ours[1]}
        first = part.get(self.kind, ("", 0))
        views = {}
        for key in "io":
            views[key] = View(whole, first[1] if key == first[0] else 0, size[key])
        return {**views, "s": View([None] * size["s"], 0, size["s"])}

    def parted(self):
        return self.kind in ("allgather", "reducescatter", "gather", "scatter", "alltoall")

    def whole(self):
        """Return the chunks of the larger buffer; gather and scatter count one rank's part."""
        return self.per_loop * (self.ranks if self.kind in ("gather", "scatter") else 1)

    def run(self, chance: random.Random):
        # those that may have become able since they were looked at last
        candidates = list(self.blocks.values())
        # in half of the orders some blocks go on as far as they can before others begin
        urgency = {id(block): chance.random() for block in candidates} if chance.random() < 0.5 else None
        while candidates:
            place = chance.randrange(len(candidates))
            if urgency:
                place = max(range(len(candidates)), key=lambda at: urgency[id(candidates[at])])
            candidates[place], candidates[-1] = candidates[-1], candidates[place]
            block = candidates.pop()
            if self._able(block):
                self._go(block)
                candidates += [block, *self._roused(block)]
        stuck = [key for key, block in self.blocks.items() if block.at < len(block.steps)]
        if stuck:
            raise StuckError(f"thread blocks {stuck} wait for ever")
        assert not any(self.links.values()), "what was sent is not received"

    def _able(self, block):
        if block.at == len(block.steps):
            return False
        if block.begun is not None:
            return True
        step = block.steps[block.at]
        dependency = int(step["depid"])
        if dependency >= 0:
            other = self.blocks[block.gpu, dependency]
            assert any(int(one["hasdep"]) for one in other.steps[int(step["deps"]) :]), "nobody is told"
            block.waits = other.passed < int(step["deps"])
            if block.waits:
                return False
        if step["type"] in RECEIVES and not self._link(block.recv, block.gpu, block.channel):
            return False
        full = step["type"] in SENDS and len(self._link(block.gpu, block.send, block.channel)) >= self.slots
        return not full

    def _roused(self, block):
        """Return the blocks that may continue after a block's last step."""
        ends = (("s", block.gpu, block.send), ("r", block.recv, block.gpu))
        peers = [
            self.ends["r" if way == "s" else "s", src, dst, block.channel]
            for way, src, dst in ends
            if min(src, dst) >= 0
        ]
        return peers + [other for other in self.of_gpu[block.gpu] if other.waits]

    def _link(self, src, dst, channel):
        assert src >= 0, "a block receives and has nobody to receive from"
        assert dst >= 0, "a block sends and has nobody to send to"
        return self.links.setdefault((src, dst, channel), deque())

    def _go(self, block):
        step = block.steps[block.at]
        kind, count = step["type"], int(step["cnt"])
        memory = self.memory[block.gpu]
        if block.begun is None:
            block.begun = self._values(block, step, kind, count, memory)
            return
        if kind in WRITES:
            target = memory[step["dstbuf"]]
            for number, value in enumerate(block.begun):
                target[int(step["dstoff"]) + number] = value
        if kind in SENDS:
            self._link(block.gpu, block.send, block.channel).append(block.begun)
        if int(step["hasdep"]):
            block.passed = block.at
        block.at += 1
        block.begun = None

    def _values(self, block, step, kind, count, memory):
        """Return the values that a step computes from those it reads."""
        assert kind in SENDS | RECEIVES | WRITES | {"nop"}
        if kind == "nop":
            return []
        source, target = memory[step["srcbuf"]] if kind not in ("r", "rcs") else None, memory[step["dstbuf"]]
        came = self._link(block.recv, block.gpu, block.channel).popleft() if kind in RECEIVES else None
        assert came is None or len(came) == count, "sent and received counts differ"
        if kind in ("r", "rcs"):
            return came
        here = [source[int(step["srcoff"]) + number] for number in range(count)]
        assert None not in here, "a step reads what nobody has written"
        if kind in REDUCES:
            return [a + b for a, b in zip(here, came, strict=True)]
        if kind == "re":
            there = [target[int(step["dstoff"]) + number] for number in range(count)]
            assert None not in there, "a step adds to what nobody has written"
            return [a + b for a, b in zip(here, there, strict=True)]
        return here


class View:
    """A part of a memory, with bounds that are kept."""

    def __init__(self, cells, first, count):
        self.cells, self.first, self.count = cells, first, count
        assert first >= 0
        assert first + count <= len(cells)

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        assert 0 <= number < self.count, "outside of a buffer"
        return self.cells[self.first + number]

    def __setitem__(self, number, value):
        assert 0 <= number < self.count, "outside of a buffer"
        self.cells[self.first + number] = value


def outcome(text, chance, *, in_place=False, slots=1):
    """Return each rank's output after a run, and the expected output (None if undefined)."""
    machine = Machine(text, in_place=in_place, slots=slots)
    ranks, kind, per_loop = machine.ranks, machine.kind, machine.per_loop
    per = per_loop // ranks if kind in ("allgather", "reducescatter", "alltoall") else per_loop

    def holds(rank):
        return rank == 0 if kind in ("broadcast", "scatter") else True

    sizes = {"allreduce": per, "broadcast": per, "reduce": per, "allgather": per, "gather": per}
    length = sizes.get(kind, ranks * per)
    inputs = [[chance.getrandbits(40) for _ in range(length)] if holds(r) else [] for r in range(ranks)]
    for rank, values in enumerate(inputs):
        for number, value in enumerate(values):
            machine.memory[rank]["i"][number] = value
    before = [list(values) for values in inputs]
    machine.run(chance)
    if not in_place and machine.attributes["outofplace"] == "1":
        for rank, values in enumerate(before):
            assert [machine.memory[rank]["i"][n] for n in range(len(values))] == values, (
                "an input was changed"
            )
    total = [sum(column) for column in zip(*inputs, strict=True)] if "reduce" in kind else []
    joined = [value for values in inputs for value in values]
    wanted = {
        "allreduce": lambda rank: total,
        "reduce": lambda rank: total if rank == 0 else None,
        "broadcast": lambda rank: inputs[0],
        "allgather": lambda rank: joined,
        "gather": lambda rank: joined if rank == 0 else None,
        "reducescatter": lambda rank: total[rank * per : (rank + 1) * per],
        "scatter": lambda rank: inputs[0][rank * per : (rank + 1) * per],
        "alltoall": lambda rank: [v for values in inputs for v in values[rank * per : (rank + 1) * per]],
    }[kind]
    for rank in range(ranks):
        promised = wanted(rank)
        if promised is None:
            continue
        # files that know one buffer only leave the answer in their input
        output = machine.memory[rank]["o" if len(machine.memory[rank]["o"]) or not in_place else "i"]
        yield [output[number] for number in range(len(promised))], promised
