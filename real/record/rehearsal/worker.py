"""One rank of a rehearsal: run the script on the device that does not exist, but have its time pass.

Started by `ringside.real.launch.rank`, or forked. For each timed step rank 0 appends one JSON line to ROWS
with the seconds of every rank from a common start to the end of all that its device does in the step.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore
from torch.optim.optimizer import register_optimizer_step_post_hook

from ringside.real.host import fingerprint
from ringside.real.launch.follow import show_life
from ringside.real.machine import run_first
from ringside.real.record.part import RankOrder
from ringside.real.record.processes import environment
from ringside.real.record.rehearsal.device import SleepingDevice
from ringside.real.record.rehearsal.gloo import GlooExchange
from ringside.real.record.rehearsal.job import RehearsalJob
from ringside.real.record.script.tape import TAPE
from ringside.real.record.script.worker import install, run_script
from ringside.sim.recorded.job import Operator

_AHEAD_S = 0.005
_SWITCH_S = 0.0005
"""Seconds after which threads that run Python let others: lanes wake while the host posts."""


class Enough(BaseException):
    """All steps that count have run; the script goes no further, whatever exceptions it catches."""


class Rehearsal:
    """The steps of a script on this rank's device, begun together on all ranks."""

    def __init__(self, job: RehearsalJob, exchange: GlooExchange, rows: Path) -> None:
        self.device = SleepingDevice(self._seconds, exchange)
        self._job = job
        self._prices = dict(job.prices)
        self._all = exchange.all
        self._rows = rows
        self._steps = 0
        self._begin = 0.0
        self._unknown: Operator | None = None

    def install(self) -> None:
        """Carry out what is posted, and see optimizers step."""
        TAPE.on_post = self.device.post
        register_optimizer_step_post_hook(self._stepped)

    def _seconds(self, operator: Operator) -> float:
        if operator not in self._prices:
            self._unknown = operator
        return self._prices.get(operator, 0.0)

    def _stepped(self, *_: Any) -> None:
        """End a step: note its time if it counts, and begin the next one."""
        end = self.device.synchronize()
        if self._steps > self._job.warmup:
            if self._unknown is not None:
                raise SystemExit(f"a timed step has {self._unknown}, which was not recorded")
            self._note(end - self._begin)
        if self._steps == self._job.warmup + self._job.iterations:
            raise Enough
        self._steps += 1
        self._unknown = None
        self._begin = self._together()
        self.device.begin(self._begin)

    def _note(self, seconds: float) -> None:
        own = torch.tensor([seconds], dtype=torch.float64)
        every = [torch.zeros(1, dtype=torch.float64) for _ in range(self._all.size())]
        self._all.allgather([every], [own]).wait()
        if self._all.rank() == 0:
            row = {"ranks": [one.item() for one in every], "fingerprint": fingerprint()}
            with self._rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def leave(self) -> None:
        """Return when all ranks are here: the first one has the store."""
        self._all.barrier().wait()

    def _together(self) -> float:
        """Return at the same moment on all ranks, which share this machine's clock; return the moment."""
        self.leave()
        moment = torch.tensor([time.monotonic() + _AHEAD_S], dtype=torch.float64)
        self._all.broadcast([moment]).wait()
        start = float(moment.item())
        time.sleep(max(start - time.monotonic(), 0.0))
        if self._all.rank() == 0:
            show_life(self._rows)
        return start


def carry_out(order: Path, rows: Path) -> None:
    """Meet the others where torchrun's environment variables say, and run the script as this rank."""
    job = RehearsalJob.read(order)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    run_first()
    wait = timedelta(seconds=job.timeout_s)
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(address, port, ranks, rank == 0, timeout=wait)
    exchange = GlooExchange(store, rank, ranks, job.timeout_s)
    rehearsal = Rehearsal(job, exchange, rows)
    sys.setswitchinterval(_SWITCH_S)
    own = _order(job, order.parent, rank, ranks)
    os.environ.update(environment(own))
    install(own, [rehearsal])
    try:
        run_script(own)
    except Enough:
        rehearsal.leave()
        return
    raise SystemExit(f"{job.script} took fewer than {job.warmup + job.iterations + 1} optimizer steps")


def _order(job: RehearsalJob, folder: Path, rank: int, ranks: int) -> RankOrder:
    mail = folder / "mail"
    mail.mkdir(exist_ok=True)
    return RankOrder(
        script=job.script, is_module=False, arguments=job.arguments, rank=rank, ranks=ranks, per_node=1,
        steps=0, with_source=False, mail=str(mail), result=str(folder / f"rank{rank}.json"),
    )  # fmt: skip
