"""Does a program really end? Ranks forked from one process that has torch loaded, watched from outside."""

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

START_S = 60.0
"""How long ranks may take until they have met."""

ENDED, HANGS, FAILS = "ended", "hangs", "fails"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial: all ranks ended, some never did, or one failed and what it said."""

    outcome: str
    said: str = ""


def trial(main: Callable[[Any], Any], ranks: int, patience_s: float) -> Outcome:
    """Run ``main`` on so many ranks of Gloo; kill them once all have ended, one fails or nothing moves."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed.device_mesh", "real.program.distributed"])
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
            return _watch(pipes, patience_s)
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.join()


def _watch(pipes: list[Connection], patience_s: float) -> Outcome:
    """Hear what each rank says at its end; one whose pipe closes without a word was killed."""
    left, until, started = list(pipes), time.monotonic() + START_S, 0
    while left:
        ready = wait(left, max(until - time.monotonic(), 0))
        if not ready:
            return Outcome(HANGS, f"{len(left)} of {len(pipes)} ranks are still there")
        for pipe in ready:
            assert isinstance(pipe, Connection)
            left.remove(pipe)
            try:
                said = pipe.recv()
            except EOFError:
                return Outcome(FAILS, "a rank was killed")
            if said == "started":
                left.append(pipe)
                started += 1
                if started == len(pipes):
                    until = time.monotonic() + patience_s
            elif said:
                return Outcome(FAILS, said)
    return Outcome(ENDED)


def _live(main: Callable[[Any], Any], rank: int, ranks: int, folder: Path, pipe: Connection) -> None:
    """A rank's life; it stays until it is killed, for others hear of who leaves."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    from real.program.distributed import RealDistributed

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
