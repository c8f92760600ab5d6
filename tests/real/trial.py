"""Test whether a program really ends, on ranks forked from one process that has torch loaded.

A hanging job is recognised by its processes, not by the clock: all its threads have slept for a while, or
they have used far more CPU time than necessary. The second is for Gloo, which loops when the buffer of a
message is gone.
"""

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

START_S = 60.0
"""Seconds allowed for ranks to meet."""

TICK_S = 0.05
"""Seconds between two looks at the ranks."""

IDLE = 0.2
"""The share of a core that waiting ranks use together at most; Gloo's threads wake up 100 times a second."""

MOST_CPU_S = 4.0
"""CPU time after which a job that has not ended is in an endless loop."""

ENDS, HANGS, FAILS = "ends", "hangs", "fails"
"""Outcomes, by the words of `ringside.sim.program.check`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a trial, `ENDS`, `HANGS` or `FAILS`, and why."""

    outcome: str
    reason: str = ""


def trial(main: Callable[[Any], Any], ranks: int, patience_s: float) -> Outcome:
    """Run ``main`` on ``ranks`` ranks of Gloo, and kill them once the outcome is known.

    It hangs where all have slept for ``patience_s``, which must be longer than any of its computes.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "torch.distributed.device_mesh", "ringside.real.program.distributed"]
    )
    with tempfile.TemporaryDirectory(prefix="ringside-") as folder:
        pipes, processes = [], []
        for rank in range(ranks):
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=_live, args=(main, rank, ranks, Path(folder), there), daemon=True
            )
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        try:
            return _watch(pipes, [process.pid or 0 for process in processes], patience_s)
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.join()


def _watch(pipes: list[Connection], pids: Sequence[int], patience_s: float) -> Outcome:
    """Return the outcome from each rank's report at its end; a rank without a report was killed."""
    left, started, since = list(pipes), 0, time.monotonic()
    activity = _Activity(pids)
    while left:
        for pipe in wait(left, TICK_S):
            assert isinstance(pipe, Connection)
            left.remove(pipe)
            try:
                report = pipe.recv()
            except EOFError:
                return Outcome(FAILS, "a rank was killed")
            if report == "started":
                left.append(pipe)
                started += 1
            elif report:
                return Outcome(FAILS, report)
            activity = _Activity(pids)
        if started < len(pipes):
            hangs = time.monotonic() > since + START_S
        else:
            hangs = activity.idle_s() > patience_s or activity.cpu_s() > MOST_CPU_S
        if hangs and left:
            return Outcome(HANGS, f"{len(left)} of {len(pipes)} ranks are still running")
    return Outcome(ENDS)


class _Activity:
    """The activity of some processes since the first look, by the kernel's accounting."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._begin = self._before = self._cpu_s()[0]
        self._moment = self._idle_since = time.monotonic()

    def cpu_s(self) -> float:
        """Return the CPU time used."""
        return self._cpu_s()[0] - self._begin

    def idle_s(self) -> float:
        """Return how long all have only waited: almost no CPU time, and no runnable thread."""
        moment = time.monotonic()
        used, runs = self._cpu_s()
        if runs > 1 or used - self._before > IDLE * (moment - self._moment):
            self._idle_since = moment
        self._before, self._moment = used, moment
        return moment - self._idle_since

    def _cpu_s(self) -> tuple[float, int]:
        """Return the CPU time of all threads, and the number of runnable ones."""
        nanoseconds = runs = 0
        for pid in self._pids:
            for thread in _threads(pid):
                with suppress(OSError):  # it has ended
                    nanoseconds += int((thread / "schedstat").read_text().split()[0])
                    runs += (thread / "stat").read_text().rpartition(")")[2].split()[0] in "RD"
        return nanoseconds / 1e9, runs


def _threads(pid: int) -> list[Path]:
    """Return the folders of a process's threads, none once it has ended."""
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return []


def _live(main: Callable[[Any], Any], rank: int, ranks: int, folder: Path, pipe: Connection) -> None:
    """Run a rank; it stays until it is killed, because others notice who leaves."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    from ringside.real.program.distributed import RealDistributed

    log = os.open(folder / str(rank), os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    store = FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(minutes=10))
    pipe.send("started")
    try:
        main(RealDistributed())
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
    else:
        pipe.send("")
    signal.pause()
