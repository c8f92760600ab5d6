"""One rank of a real run of a program: run the script's ``main``, and record every operation.

Started by `ringside.real.launch.rank`, or forked. For each timed iteration rank 0 appends one JSON line to
ROWS with the operations of all ranks, in seconds from the moment at which the first of them began.
"""

import json
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from ringside.real.backends import ON_SOCKETS
from ringside.real.clock import Stamps, StartingGun, stamps
from ringside.real.host import fingerprint, own_device
from ringside.real.launch.follow import show_life
from ringside.real.launch.loopback import joined
from ringside.real.machine import run_first
from ringside.real.program.distributed import RealDistributed
from ringside.real.program.job import ProgramJob
from ringside.sim.program.record.script import a_process, main_of

_COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier",
    "monitored_barrier", "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
)  # fmt: skip

_MESSAGES = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")

_CATEGORIES = {
    "compute": "compute",
    **dict.fromkeys(_COLLECTIVES, "collective"),
    **dict.fromkeys(_MESSAGES, "message"),
}


class Timed:
    """A `RealDistributed` whose operations are timed: ``spans`` are [begin, end, category, name], in order.

    An asynchronous operation begins with its call and ends with its ``wait``, or else with the job. Gloo
    forgets a message whose Work is dropped, so no Work is kept here.
    """

    def __init__(self, real: RealDistributed, clock: Stamps) -> None:
        self.spans: list[list[Any]] = []
        self._real = real
        self._clock = clock
        self._open: dict[int, TimedWork] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._real, name)
        if name not in _CATEGORIES:
            return attribute
        self.__dict__[name] = timed = self._timed(name, attribute)
        return timed

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self._real.device

    def run(self, main: Callable[[Any], Any]) -> dict[str, Any]:
        """Run a job until its collectives have ended too; return its times in seconds."""
        self.spans = []
        self._real.again()
        self._clock.begin()
        begin = self._clock.now()
        main(self)
        for work in list(self._open.values()):
            work.wait()
        self._real.synchronize()
        end, moment = self._clock.now(), self._clock.seconds
        spans = [
            [moment(first), moment(end if last is None else last), *what] for first, last, *what in self.spans
        ]
        return {"begin": moment(begin), "end": moment(end), "spans": spans}

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def timed(*arguments: Any, **options: Any) -> Any:
            begin = self._clock.now()
            given = call(*arguments, **options)
            if isinstance(given, list):
                return [self._work(work, name, begin) for work in given]
            if hasattr(given, "wait"):
                return self._work(given, name, begin)
            self.spans.append([begin, self._clock.now(), _CATEGORIES[name], name])
            return given

        timed.__name__ = name
        return timed

    def _work(self, work: Any, name: str, begin: Any) -> "TimedWork":
        span = [begin, None, _CATEGORIES[name], name]
        self.spans.append(span)
        return TimedWork(work, span, self)


class TimedWork:
    """The result of an asynchronous call; its span ends with its wait."""

    def __init__(self, work: Any, span: list[Any], timed: Timed) -> None:
        self._work = work
        self._span = span
        self._timed = timed
        if span[2] != "message" or timed.device.type != "cpu":
            timed._open[id(self)] = self

    def wait(self, *arguments: Any) -> bool:
        """Wait for the operation as the library does."""
        begin = self._timed._clock.now()
        self._work.wait(*arguments)
        end = self._timed._clock.now()
        self._timed.spans.append([begin, end, "wait", f"wait for {self._span[3]}"])
        self._timed._open.pop(id(self), None)
        if self._span[1] is None:
            self._span[1] = end
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


_SIDE = {"cpu": 128, "cuda": 1024}
"""The size of the matrices to multiply: one product takes some ten microseconds."""

_REPEATS = 9


def computing(kind: str, device: torch.device) -> Callable[[float], None]:
    """Return a stand-in for ``compute(seconds)``: sleep, or matrix products, whose duration is measured now.

    Sleep on a GPU keeps its current stream busy for the corresponding number of cycles.
    """
    if kind == "matmul":
        side = _SIDE[device.type]
        one, other, product = (torch.ones(side, side, device=device) for _ in range(3))
        return _repeated(lambda count: _multiply(one, other, product, count), device)
    if device.type == "cuda":
        return _repeated(lambda count: torch.cuda._sleep(1000 * count), device)  # type: ignore[no-untyped-call]
    return time.sleep


def _multiply(one: torch.Tensor, other: torch.Tensor, product: torch.Tensor, count: int) -> None:
    for _ in range(count):
        torch.mm(one, other, out=product)


def _repeated(work: Callable[[int], object], device: torch.device) -> Callable[[float], None]:
    """Repeat the work for a given time, computed from its median duration without load."""
    clock, count, seconds = stamps(device), 256, []
    for _ in range(_REPEATS + 1):
        clock.begin()
        begin = clock.now()
        work(count)
        seconds.append(clock.seconds(clock.now()) - clock.seconds(begin))
    each = median(seconds[1:]) / count

    def compute(wanted: float) -> None:
        work(round(wanted / each))

    return compute


def carry_out(order: Path, rows: Path) -> None:
    """Join the process group that torchrun's environment variables describe, and run this rank's part."""
    job = ProgramJob.read(order)
    torch.set_num_threads(1)
    device = own_device(job.backend)
    compute = computing(job.compute, device)  # measured before ranks that run first take the cores
    if job.backend in ON_SOCKETS and job.compute == "sleep":
        run_first()
    with joined(job.backend, job.timeout_s, device if job.eager else None):
        _repeat(job, Timed(RealDistributed(compute, str(device), job.timeout_s), stamps(device)), rows)


def _repeat(job: ProgramJob, timed: Timed, rows: Path) -> None:
    """Run all iterations, each started together on all ranks with the script loaded again."""
    gun, script = StartingGun(timed.device), Path(job.script)
    with a_process(script):
        for iteration in range(job.warmup + job.iterations):
            main = main_of(script)
            gun.wait()
            own = timed.run(main)
            everybody: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(everybody, own)
            if dist.get_rank():
                continue
            show_life(rows)
            if iteration >= job.warmup:
                row = {"ranks": _from_the_first(everybody), "fingerprint": fingerprint()}
                with rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


def _from_the_first(everybody: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ranks' times, in seconds since the first of them began."""
    zero = min(own["begin"] for own in everybody)
    return [
        {
            "end_s": own["end"] - zero,
            "operations": [
                [begin - zero, end - zero, category, name] for begin, end, category, name in own["spans"]
            ],
        }
        for own in everybody
    ]
