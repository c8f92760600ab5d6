"""One rank of an elastic run: load a checkpoint if there is one, train, save; start again after a kill.

Started by `ringside.real.launch.rank`. Every rank appends a JSON line to ROWS when its process has started,
so that it can be killed; rank 0 appends one per event, with the time at which it ended (`time.time`). torch
is imported late, so that its import can be timed.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from ringside.real.elastic.job import ElasticJob
from ringside.real.machine import scheduler


class Diary:
    """Events of the rank, one line each in the file that the launcher follows."""

    def __init__(self, rows: Path) -> None:
        self._rows = os.open(rows, os.O_WRONLY | os.O_APPEND)
        self._own = {
            "rank": int(os.environ["RANK"]), "attempt": int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        }  # fmt: skip

    def note(self, event: str, **more: Any) -> None:
        """Append an event that has just ended, in one write, which a kill cannot split."""
        line = json.dumps({"event": event, "time": time.time(), **self._own, **more}) + "\n"
        os.write(self._rows, line.encode())


def carry_out(order: Path, rows: Path) -> None:
    """Note that this rank has started, and train."""
    diary = Diary(rows)
    diary.note("begun", pid=os.getpid(), scheduler=scheduler())
    _train(ElasticJob.read(order), diary)


def _train(job: ElasticJob, diary: Diary) -> None:
    """Train from the last checkpoint until all steps are done; check every sum."""
    import torch
    import torch.distributed as dist

    from ringside.real.launch.loopback import join

    torch.set_num_threads(1)
    first = diary if os.environ["RANK"] == "0" else None
    if first:
        first.note("imported")
    join("gloo", job.timeout_s)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    dist.barrier()
    if first:
        first.note("initialized")
    file = Path(job.folder, "checkpoint.pt")
    state = {
        "step": torch.tensor(0),
        "sum": torch.zeros(max(1, job.checkpoint_bytes // 8), dtype=torch.int64),
    }
    if file.exists():
        state = torch.load(file, weights_only=True)
    dist.barrier()
    if first:
        first.note("loaded", step=int(state["step"]))
    for step in range(int(state["step"]) + 1, job.steps + 1):
        time.sleep(job.step_s)
        part = torch.tensor([step * (rank + 1)])
        dist.all_reduce(part)
        state["sum"][0] += part[0]
        state["step"] = torch.tensor(step)
        if first:
            first.note("step", step=step)
        if step % job.interval == 0 or step == job.steps:
            if first:
                _save(torch, state, file)
            dist.barrier()
            if first:
                first.note("saved", step=step)
    whole = job.steps * (job.steps + 1) // 2 * ranks * (ranks + 1) // 2
    if int(state["sum"][0]) != whole:
        raise SystemExit(f"the sum after all steps is {int(state['sum'][0])}, not {whole}")
    if first:
        first.note("done")
    dist.destroy_process_group()


def _save(torch: Any, state: dict[str, Any], file: Path) -> None:
    """Replace the last checkpoint by the state, atomically, and flush it to the disk."""
    beside = file.with_suffix(".new")
    with beside.open("wb") as out:
        torch.save(state, out)
        out.flush()
        os.fsync(out.fileno())
    beside.replace(file)
