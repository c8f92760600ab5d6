"""A file's events as `Trace`s: one per rank, which is one file, or one GPU of a file of several."""

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringside.validation.readers.kineto.calls import (
    CallFacts,
    Calls,
    facts_of_host,
    from_args,
    is_host_backend,
    ranks_of,
)
from ringside.validation.readers.kineto.events import Events, TraceEvent, kernel_kind
from ringside.validation.readers.kineto.files import EXPECTED, read_json, texts
from ringside.validation.readers.kineto.trace import KernelSpan, RankTrace, Traced, TracedGroup, TraceError

_RANK = re.compile(r"(?:rank|worker)[-_]?(\d+)", re.IGNORECASE)


def read_traces(paths: Iterable[Path]) -> list[RankTrace]:
    """Read all traces of the paths: files, folders, archives; raise `TraceError` for anything else."""
    traces = [trace for path, text in texts(paths) for trace in read_text(path, text)]
    _check_one_job(traces)
    traces.sort(key=lambda trace: (trace.rank is None, trace.rank or 0))
    ranks = next((trace.ranks for trace in traces if trace.ranks), None)
    if ranks is None and len(traces) > 1 and [trace.rank for trace in traces] == list(range(len(traces))):
        note = f"the traces do not give the number of ranks: assumed to be these {len(traces)}"
        return [replace(trace, ranks=len(traces), notes=(*trace.notes, note)) for trace in traces]
    return [replace(trace, ranks=ranks) for trace in traces]


def read_text(path: Path, text: str) -> list[RankTrace]:
    """Read the traces of one file's text."""
    events = Events()
    head = read_json(path, text, events.take)
    if not events.known:
        have = "a 'traceEvents' without" if "traceEvents" in head else "no 'traceEvents' with"
        raise TraceError(f"{path}: {have} any event of the PyTorch profiler; {EXPECTED}")
    for one in (events.kernels, events.calls, events.steps):
        one.sort(key=lambda event: event.begin)
    job = _Job(path, head, events)
    devices = sorted({str(_device(kernel)) for kernel in events.kernels}, key=lambda text: (len(text), text))
    if len(devices) < 2:
        return [job.trace(None, job.rank)]
    return [job.trace(device, number) for number, device in enumerate(devices)]


class _Job:
    """A file on its way to traces."""

    def __init__(self, path: Path, head: dict[str, Any], events: Events) -> None:
        self._path, self._events = path, events
        self._calls = Calls(events)
        self._info = _object(head.get("distributedInfo"))
        self._groups = _groups(self._info)
        self._gpus = [str(one.get("name", "")) for one in _objects(head.get("deviceProperties"))]
        base = head.get("baseTimeNanoseconds")
        self._origin_ns = round(events.first * 1000) + (base if isinstance(base, int) else 0)
        self._steps = tuple(
            KernelSpan(self._s(step.begin), self._s(step.end), name=step.name) for step in events.steps
        )
        self.rank = self._rank()

    def trace(self, device: str | None, rank: int | None) -> RankTrace:
        """Return the trace of one GPU, or of the whole file where it has at most one GPU."""
        events = self._events
        kernels = [one for one in events.kernels if device is None or str(_device(one)) == device]
        collectives = [self._of_kernel(kernel) for kernel in kernels]
        collectives += [self._of_host(call, [call]) for call in events.calls if is_host_backend(call)]
        if not collectives:
            collectives = [
                self._of_host(call, inside, timed=False) for call, inside in self._calls.outermost()
            ]
        work = [span for span in events.work if device is None or str(span[3]) == device]
        ranks = self._info.get("world_size")
        return RankTrace(
            path=self._path,
            rank=rank,
            ranks=ranks if isinstance(ranks, int) and ranks > 0 else None,
            backend=self._word("backend"),
            library_version=self._word("nccl_version"),
            gpu=self._gpus[0] if self._gpus and (kernels or events.work) else None,
            gpus=len(self._gpus),
            origin_ns=self._origin_ns,
            groups=tuple(self._groups.values()),
            steps=self._steps,
            collectives=tuple(sorted(collectives, key=lambda one: one.begin_s)),
            work=tuple(self._work(work) if work or kernels else self._host_work()),
            waits=tuple(sorted(self._s(at) for at, _ in events.waits)),
            notes=tuple(self._notes(device, kernels, collectives)),
        )

    def _of_kernel(self, kernel: TraceEvent) -> Traced:
        call, source = self._calls.of(kernel)
        launch = self._calls.launch(kernel)
        grid = kernel.args.get("grid")
        traced = self._traced(call, source, kernel, None if launch is None else launch.at)
        return replace(
            traced,
            kind=traced.kind or kernel_kind(kernel.name),
            stream=str(kernel.args.get("stream", kernel.thread[1])),
            channels=grid[0] if isinstance(grid, list) and grid and isinstance(grid[0], int) else None,
        )

    def _of_host(self, call: TraceEvent, inside: Sequence[TraceEvent], *, timed: bool = True) -> Traced:
        traced = self._traced(*facts_of_host(inside), call, call.begin)
        return traced if timed else replace(traced, end_s=None)

    def _traced(self, call: CallFacts | None, source: str, event: TraceEvent, called: float | None) -> Traced:
        own = call or CallFacts(event.name, None)
        sized = own.in_bytes is not None or own.out_bytes is not None
        return Traced(
            kind=own.kind,
            name=own.name,
            begin_s=self._s(event.begin),
            end_s=self._s(event.end),
            called_s=None if called is None else self._s(called),
            in_bytes=own.in_bytes,
            out_bytes=own.out_bytes,
            dtype=own.dtype,
            group=self._full(own.group),
            sequence=own.sequence,
            identity=own.identity,
            peer=own.peer,
            is_uneven=own.is_uneven,
            stream=str(event.thread[1]),
            step=None if called is None else self._step(called),
            source=source if sized else None,
            unknown="" if sized else _why(call, source),
        )

    def _notes(
        self, device: str | None, kernels: Sequence[TraceEvent], collectives: Sequence[Traced]
    ) -> list[str]:
        notes = []
        if device is not None:
            notes.append(f"{self._path.name} has kernels of several GPUs: each is treated as a rank")
        if kernels and device is None and (shared := self._calls.shared()):
            notes.append(f"{shared} calls launched several kernels each, which all state the call's size")
        if not kernels and any(one.end_s is None for one in collectives):
            notes.append("the trace has calls, but no kernels of collectives: their durations are unknown")
        return notes

    def _work(self, spans: Iterable[tuple[float, float, Any, Any]]) -> list[KernelSpan]:
        launches = self._events.launches
        work = []
        for begin, end, correlation, _ in sorted(spans, key=lambda span: span[:2]):
            launch = launches.get(correlation)
            work.append(KernelSpan(self._s(begin), self._s(end), self._s(launch.at) if launch else None))
        return work

    def _host_work(self) -> list[KernelSpan]:
        """Return the outermost operators of the host's threads."""
        spans: list[KernelSpan] = []
        until: dict[Any, float] = {}
        for begin, end, thread in sorted(self._events.operators, key=lambda one: (one[0], -one[1])):
            if begin >= until.get(thread, begin):
                until[thread] = end
                spans.append(KernelSpan(self._s(begin), self._s(end), self._s(begin)))
        return spans

    def _s(self, at: float) -> float:
        """Convert microseconds of the file to seconds from its first event."""
        return (at - self._events.first) / 1e6

    def _step(self, at: float) -> str | None:
        steps = self._events.steps
        number = bisect_right(steps, at, key=lambda step: step.begin) - 1
        return steps[number].name if number >= 0 and at <= steps[number].end else None

    def _full(self, group: TracedGroup) -> TracedGroup:
        """Complete a truncated group by the file's header."""
        known = self._groups.get(group.name or "")
        if known is None or group.ranks is not None:
            return group
        if group.size is not None and group.size != len(known.ranks or ()):
            return group
        return group._replace(
            ranks=known.ranks, size=known.size, description=group.description or known.description
        )

    def _word(self, key: str) -> str | None:
        value = self._info.get(key)
        return value if isinstance(value, str) and value else None

    def _rank(self) -> int | None:
        rank = self._info.get("rank")
        if isinstance(rank, int) and rank >= 0:
            return rank
        calls = [from_args(call.args, call.place) for call in self._events.calls]
        named = {one.rank for one in calls if one and one.rank is not None}
        if len(named) == 1:
            return named.pop()
        match = _RANK.search(self._path.name)
        return int(match[1]) if match and len(match[1]) < 9 else None


def _why(call: CallFacts | None, source: str) -> str:
    if call is None:
        return source
    if call.kind == "barrier":
        return "a barrier moves no data"
    return source if source not in ("args", "operator") else "shapes or types were not recorded"


def _device(kernel: TraceEvent) -> Any:
    return kernel.args.get("device", kernel.thread[0])


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return []
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _groups(info: dict[str, Any]) -> dict[str, TracedGroup]:
    """Return the process groups in the file's header."""
    groups = {}
    for one in _objects(info.get("pg_config")):
        ranks = one.get("ranks")
        name = one.get("pg_name")
        if isinstance(name, str) and (members := ranks_of(ranks)):
            description = one.get("pg_desc")
            groups[name] = TracedGroup(
                name, description if isinstance(description, str) else None, len(members), members
            )
    return groups


def _check_one_job(traces: Sequence[RankTrace]) -> None:
    ranks = [trace.rank for trace in traces]
    if len(traces) > 1 and None in ranks:
        lost = traces[ranks.index(None)].path
        raise TraceError(
            f"{lost}: unknown rank: neither the trace nor its name gives it; name it rank0.json or the like"
        )
    twice = next((rank for rank, count in Counter(ranks).items() if count > 1), None)
    if len(traces) > 1 and twice is not None:
        paths = [str(trace.path) for trace in traces if trace.rank == twice]
        raise TraceError(
            f"{' and '.join(paths[:2])} are both of rank {twice}; name the traces of one job, one per rank"
        )
    sizes = {trace.ranks: trace.path for trace in traces if trace.ranks}
    if len(sizes) > 1:
        counts = ", ".join(f"{count} ranks in {path}" for count, path in sorted(sizes.items()))
        raise TraceError(f"traces of several jobs: {counts}; name those of one")
    if sizes and any(rank is not None and rank >= next(iter(sizes)) for rank in ranks):
        most = max(filter(None, ranks))
        raise TraceError(f"rank {most} of a job of {next(iter(sizes))} ranks; name the traces of one job")
