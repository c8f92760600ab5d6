"""Jobs over Gloo that hang in a known way, the Flight Recorder's dumps of them, and what is said of these.

``python -m tests.real.hangs.hanging`` runs 160, in ten minutes, and exits 1 unless all are explained; two
numbers say which seeds.
"""

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ringside.sim.flight.finding import Finding
from ringside.sim.questions.hang_cause import HangAnswer, HangCause

WAYS = ("missing", "order", "group", "dead")
SEEDS = 40

STEPS = 4

SETTLED_S = 0.8
"""Time for which all threads of all ranks must sleep: then the job hangs, however busy the machine is."""

MOST_S = 60.0
"""Time after which ranks are dumped anyway, and wait no longer for each other."""


@dataclass(frozen=True)
class Hang:
    """What one rank does wrong at one call of a step: ``missing``, ``order``, ``group`` or ``dead``."""

    way: str
    ranks: int
    seed: int

    @property
    def chance(self) -> random.Random:
        """Random numbers that are the same on all ranks."""
        return random.Random(f"{self.way} {self.ranks} {self.seed}")


Step = list[tuple[str, str, int]]
"""Calls of a step: a collective, its group, and the elements of its tensor."""


@dataclass(frozen=True)
class Plan:
    """The steps of all ranks, and the guilty rank's mistake."""

    ranks: int
    step: Step
    half: tuple[int, ...]
    guilty: int
    at_step: int
    at_call: int
    way: str

    @property
    def wrong(self) -> tuple[str, str, int]:
        """The call that the others make, and the guilty rank does not."""
        return self.step[self.at_call]


def plan(hang: Hang) -> Plan:
    """Draw a job: three to six calls a step on all ranks or on some of them."""
    chance = hang.chance
    half = tuple(sorted(chance.sample(range(hang.ranks), max(2, hang.ranks - chance.randrange(2)))))
    kinds = ["all_reduce", "broadcast", "all_gather", "barrier", "reduce_scatter"]
    step = [
        (chance.choice(kinds), chance.choice(["world", "half"]), chance.choice([1, 100, 5000]))
        for _ in range(chance.randrange(3, 7))
    ]
    at_call = chance.randrange(len(step))
    guilty = chance.choice(half if step[at_call][1] == "half" else range(hang.ranks))
    if hang.way == "order":  # two calls that differ, of which the guilty rank is in both
        at_call = chance.randrange(len(step) - 1)
        step[at_call] = ("all_reduce", "world", 100)
        step[at_call + 1] = ("broadcast", chance.choice(["world", "half"]), 5000)
        guilty = chance.choice(half)
    if hang.way == "group":
        step[at_call] = ("all_reduce", "half", 100)
        guilty = chance.choice(half)
    return Plan(hang.ranks, step, half, guilty, chance.randrange(1, STEPS), at_call, hang.way)


def run(hang: Hang, folder: Path) -> Plan:
    """Run the job in forked processes and dump every rank that lives into ``folder`` once it hangs."""
    drawn = plan(hang)
    store, port = _store()
    told, tell = os.pipe()  # its end tells the ranks to write their dumps

    def main(rank: int) -> None:
        os.close(tell)
        _rank(drawn, rank, folder, told, port)

    children = [_forked(partial(main, rank)) for rank in range(hang.ranks)]
    os.close(told)
    _settle(children)
    os.close(tell)
    for child in children:
        os.waitpid(child, 0)
    os.kill(store, signal.SIGKILL)
    os.waitpid(store, 0)
    return drawn


def _store() -> tuple[int, int]:
    """Start a store in a process of its own, as no process with threads may fork; return it and its port."""
    read, write = os.pipe()

    def main() -> None:
        import torch.distributed as dist

        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(write, str(store.port).encode())
        signal.pause()

    process = _forked(main)
    os.close(write)
    port = int(os.read(read, 8))
    os.close(read)
    return process, port


def _forked(main: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        main()
    finally:
        os._exit(0)


def _settle(processes: list[int]) -> None:
    """Wait until all threads of the processes have slept for a while."""
    since = time.monotonic()
    end = since + MOST_S
    while time.monotonic() < min(since + SETTLED_S, end):
        if not all(map(_sleeps, processes)):
            since = time.monotonic()
        time.sleep(0.05)


def _sleeps(process: int) -> bool:
    """Return whether all threads of a process sleep; one that has ended, does."""
    states = []
    for file in Path(f"/proc/{process}/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            states.append(file.read_text(encoding="utf-8").rpartition(")")[2].split()[0])
    return set(states) <= {"S", "Z"}


def _rank(drawn: Plan, rank: int, folder: Path, told: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    ranks = drawn.ranks
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    half = dist.new_group(list(drawn.half))
    groups = {"world": dist.group.WORLD, "half": half}
    threading.Thread(target=_work, args=(drawn, rank, groups), daemon=True).start()
    os.read(told, 1)
    (folder / f"rank_{rank}.part").write_bytes(torch._C._distributed_c10d._dump_fr_trace())
    (folder / f"rank_{rank}.part").rename(folder / f"rank_{rank}")
    end = time.monotonic() + MOST_S
    while len(list(folder.glob("rank_?"))) < ranks - (drawn.way == "dead") and time.monotonic() < end:
        time.sleep(0.05)  # a rank that ends would wake those that wait for it
    os._exit(0)


def _work(drawn: Plan, rank: int, groups: dict[str, object]) -> None:
    for number in range(STEPS):
        calls = list(drawn.step)
        if rank == drawn.guilty and number == drawn.at_step:
            match drawn.way:
                case "missing":
                    calls = calls[: drawn.at_call]
                    number = STEPS
                case "dead":
                    calls = calls[: drawn.at_call]
                case "order":
                    at = drawn.at_call
                    calls[at], calls[at + 1] = calls[at + 1], calls[at]
                case "group":
                    kind, _, size = calls[drawn.at_call]
                    calls[drawn.at_call] = kind, "world", size
        for kind, group, size in calls:
            if group == "world" or rank in drawn.half:
                _call(kind, groups[group], size)
        if rank == drawn.guilty and number >= STEPS:
            return
        if rank == drawn.guilty and drawn.way == "dead" and number == drawn.at_step:
            os._exit(1)


def _call(kind: str, group: object, size: int) -> None:
    import torch
    import torch.distributed as dist

    tensor = torch.ones(size)
    ranks = dist.get_world_size(group)
    match kind:
        case "all_reduce":
            dist.all_reduce(tensor, group=group)
        case "broadcast":
            dist.broadcast(tensor, group_src=0, group=group)
        case "all_gather":
            dist.all_gather([torch.ones(size) for _ in range(ranks)], tensor, group=group)
        case "barrier":
            dist.barrier(group=group)
        case "reduce_scatter":
            dist.reduce_scatter(tensor, [torch.ones(size) for _ in range(ranks)], group=group)


def answer(hang: Hang, folder: Path) -> tuple[Plan, HangAnswer]:
    """Run the job and ask why it hangs."""
    drawn = run(hang, folder)
    return drawn, HangCause(file=folder, ranks=hang.ranks).ask()


def is_named(drawn: Plan, finding: Finding | None) -> bool:
    """Return whether the guilty rank and its call are named: of two equal sides both, else nobody besides."""
    if finding is None or drawn.guilty not in finding.ranks:
        return False
    kind, group, _ = drawn.wrong
    calls = {(kind, group)}
    if drawn.way == "order":
        calls = {(kind, group) for kind, group, _ in drawn.step[drawn.at_call : drawn.at_call + 2]}
    if drawn.way == "group":
        calls.add((kind, "world"))
    recorded = {("all_reduce" if kind == "reduce_scatter" else kind, group) for kind, group in calls}
    named = (finding.call, "half" if finding.group != "0" else "world")
    return named in recorded and len(finding.ranks) <= 2


def main() -> None:
    """Run hangs of all ways and print what is said of each."""
    import torch._inductor  # noqa: F401 - before the ranks are forked, each of which would import it

    first, end = map(int, sys.argv[1:3] or (0, SEEDS))
    right = alone = 0
    hangs = [Hang(way, 2 + seed % 7, seed) for way in WAYS for seed in range(first, end)]
    for hang in hangs:
        with tempfile.TemporaryDirectory() as folder:
            drawn, said = answer(hang, Path(folder))
        is_right = is_named(drawn, said.finding)
        right += is_right
        alone += is_right and said.finding is not None and len(said.finding.ranks) == 1
        print("ok " if is_right else "BAD", hang, drawn.guilty, drawn.wrong, drawn.half, flush=True)
        print("   ", said.headline, "|", said.proof and said.proof.verdict, flush=True)
    print(f"named {right} of {len(hangs)}, of which {alone} with one rank alone", flush=True)
    sys.exit(right < len(hangs))


if __name__ == "__main__":
    main()
