"""One rank of a real training: train the job's steps, and record all communication with its times.

Started by `ringside.real.launch.rank`, or forked. For each timed step rank 0 appends one JSON line to ROWS
with all ranks' communication, in seconds from the moment at which the first of them began.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork, _resolve_process_group
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ringside.real.clock import StartingGun
from ringside.real.host import fingerprint
from ringside.real.launch.follow import show_life
from ringside.real.launch.loopback import joined
from ringside.real.machine import run_first
from ringside.real.training.job import TrainingJob
from ringside.real.training.parallel import CPU, trainee
from ringside.real.training.record import MeasuredRankStep, Said
from ringside.real.training.sleeping import SimulatedDevice

_KINDS = {
    "c10d._allgather_base_": "all_gather",
    "c10d._reduce_scatter_base_": "reduce_scatter",
    "c10d.allgather_": "all_gather",
    "c10d.allreduce_": "all_reduce",
    "c10d.alltoall_base_": "all_to_all",
    "c10d.broadcast_": "broadcast",
    "c10d.send": "send",
    "c10d.recv_": "recv",
    "_c10d_functional.all_gather_into_tensor": "all_gather",
    "_c10d_functional.all_reduce": "all_reduce",
    "_c10d_functional.all_reduce_": "all_reduce",
    "_c10d_functional.reduce_scatter_tensor": "reduce_scatter",
    "_c10d_functional.all_to_all_single": "all_to_all",
    "_c10d_functional.broadcast": "broadcast",
}
"""Operators, and the kinds of collectives and messages; any other is recorded under its own name."""

_GROUP_WORDS = {"process_group", "group_name"}
"""Argument names of communicating operators."""

_WORKS = (dist.Work, FakeWork)
"""The classes of works, each with a ``wait`` of its own."""

_WAIT = "_c10d_functional.wait_tensor"


class DispatchRecorder(TorchDispatchMode):
    """Records communication while it is entered; ``said`` is in the order of calls.

    All of torch.distributed, functional collectives too, ends in operators of ``c10d`` and
    ``_c10d_functional``; a mode of torch's dispatcher sees each of them once, on its way from Python.
    ``waited`` is called after each wait of the rank.
    """

    def __init__(self, waited: Callable[[], None] = lambda: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.said: list[Said] = []
        self._waited = waited
        self._works: dict[int, tuple[int, Any]] = {}
        self._tensors: dict[int, tuple[int, torch.Tensor]] = {}

    def __enter__(self) -> "DispatchRecorder":
        self.said = []
        self._waits = {work: work.wait for work in _WORKS}
        for work, wait in self._waits.items():
            work.wait = self._recorded(wait)  # type: ignore[method-assign]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        for work, wait in self._waits.items():
            work.wait = wait  # type: ignore[method-assign]
        self._works.clear()
        self._tensors.clear()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an operator, and record it if it communicates."""
        if any(issubclass(one, DTensor | AsyncCollectiveTensor) for one in types):
            return NotImplemented  # it decomposes into plain tensors first
        name = str(func._overloadpacket) if hasattr(func, "_overloadpacket") else ""
        if name == _WAIT:
            result = func(*args, **(kwargs or {}))
            self._end(self._tensors.pop(args[0].data_ptr(), None))
            return result
        if not _GROUP_WORDS & {one.name for one in func._schema.arguments}:
            return func(*args, **(kwargs or {}))
        place = len(self.said)
        self.said.append(_said(name, func, args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if name.startswith("c10d."):
            work = _work(result)
            self._works[id(work)] = place, work
        else:
            self._tensors[result.data_ptr()] = place, result
        return result

    def _recorded(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """Return a work's ``wait`` that is recorded."""

        def recorded(work: dist.Work, *arguments: Any, **options: Any) -> Any:
            result = wait(work, *arguments, **options)
            self._end(self._works.pop(id(work), None))
            return result

        return recorded

    def _end(self, call: "tuple[int, Any] | None") -> None:
        if call:
            self.said[call[0]] = self.said[call[0]]._replace(end_s=time.monotonic())
            self._waited()


def _work(result: Any) -> Any:
    script = result[-1] if isinstance(result, tuple | list) else result
    return dist.Work.unbox(script)


def _said(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Said:
    named = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
    kind = _KINDS.get(name, name)
    # torch's permutations are functional all-to-alls in which each rank sends to one
    if (
        name == "_c10d_functional.all_to_all_single"
        and sum(map(bool, named.get("input_split_sizes") or ())) == 1
    ):
        kind = "sendrecv"
    if "process_group" in named:
        group = dist.ProcessGroup.unbox(named["process_group"])
    else:
        group = _resolve_process_group(named["group_name"])
    ranks = tuple(dist.get_process_group_ranks(group))
    # an all_to_all's output may be larger or smaller than its input
    tensors = [named["input"]] if name == "c10d.alltoall_base_" else _tensors(named)
    tensor = max(tensors, key=lambda one: one.numel())
    nbytes = tensor.numel() * tensor.element_size()
    if name == "_c10d_functional.all_gather_into_tensor":
        nbytes *= len(ranks)
    peer = next(
        (ranks[named[one]] for one in ("dst", "src") if kind in ("send", "recv") and one in named), -1
    )
    return Said(
        kind, nbytes, str(tensor.dtype).removeprefix("torch."), ranks, peer, time.monotonic(), math.inf
    )


def _tensors(named: dict[str, Any]) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    for value in named.values():
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += [one for one in value if isinstance(one, torch.Tensor)]
    return tensors


def carry_out(order: Path, rows: Path) -> None:
    """Join the process group that torchrun's environment variables describe, and run this rank's part."""
    job = TrainingJob.read(order)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if job.realtime:
        run_first()
    with joined("gloo", job.timeout_s):
        if dist.get_world_size() != job.mesh.ranks:
            raise SystemExit(f"{dist.get_world_size()} ranks train a job of {job.mesh.ranks}")
        _train(job, rows)


def _train(job: TrainingJob, rows: Path) -> None:
    device = SimulatedDevice()
    own, recorder, gun = trainee(job, device), DispatchRecorder(device.now), StartingGun(CPU)
    for iteration in range(job.warmup + job.iterations):
        own.forget()
        gun.wait()
        begin = time.monotonic()
        device.now()
        with recorder:
            own.step()
        seen = MeasuredRankStep(begin, time.monotonic(), tuple(recorder.said))
        everybody: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, seen)
        if dist.get_rank():
            continue
        show_life(rows)
        if iteration >= job.warmup:
            row = {"ranks": _from_the_first(everybody), "fingerprint": fingerprint()}
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def _from_the_first(everybody: list[MeasuredRankStep]) -> list[MeasuredRankStep]:
    """Return the ranks' times, in seconds since the first of them began."""
    zero = min(seen.begin_s for seen in everybody)
    return [
        MeasuredRankStep(
            seen.begin_s - zero,
            seen.end_s - zero,
            tuple(
                one._replace(begin_s=one.begin_s - zero, end_s=min(one.end_s, seen.end_s) - zero)
                for one in seen.said
            ),
        )
        for seen in everybody
    ]
