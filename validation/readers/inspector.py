"""NCCL Inspector's JSON: the output of the profiler plugin of that name per collective and rank.

One object per collective and rank; a file holds those of one process: join the files of a run with ``cat`` to
have all ranks. A record is the median, over a communicator's collectives of one kind and size, of the slowest
rank present. Inspector counts a rank's own part of what is gathered or scattered, nccl-tests and records
count the whole (inspector.cc, inspectorComputeCollBw).
"""

from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ringside.sim.record import Record
from ringside.validation.readers.reading import Reading, complaint, kind_at, sound

_STATISTIC = "median of the slowest rank (NCCL Inspector)"
_PARTS = ("all_gather", "reduce_scatter")


class _Header(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str
    rank: int
    n_ranks: int
    nnodes: int


class _Performance(BaseModel):
    model_config = ConfigDict(strict=True)

    coll: str
    coll_sn: int
    coll_msg_size_bytes: int
    coll_exec_time_us: float
    coll_timing_source: str = ""


class _Operation(BaseModel):
    model_config = ConfigDict(strict=True)

    header: _Header
    coll_perf: _Performance


def is_operation(content: Any) -> bool:
    """Return whether a JSON value is one of Inspector's."""
    return (
        isinstance(content, dict) and "header" in content and bool({"coll_perf", "p2p_perf"} & content.keys())
    )


def read_inspector(objects: list[tuple[str, Any]], path: Path) -> Reading:
    """Return a record per communicator, kind and size; skip operations without a time, and sends."""
    slowest: dict[tuple[str, str, int], dict[int, tuple[float, str, _Operation]]] = {}
    skipped = 0
    for place, content in objects:
        try:
            operation = _Operation.model_validate(content) if "coll_perf" in content else None
        except ValidationError as error:
            raise complaint(error, place) from None
        if (
            operation is None
            or not operation.coll_perf.coll_exec_time_us
            or not operation.coll_perf.coll_msg_size_bytes
        ):
            skipped += 1
            continue
        done = operation.coll_perf
        ranks = slowest.setdefault((operation.header.id, done.coll, done.coll_msg_size_bytes), {})
        if done.coll_sn not in ranks or ranks[done.coll_sn][0] < done.coll_exec_time_us:
            ranks[done.coll_sn] = done.coll_exec_time_us, place, operation
    return Reading(tuple(_record(path, list(all_.values())) for all_ in slowest.values()), skipped)


def _record(path: Path, operations: list[tuple[float, str, _Operation]]) -> Record:
    times = sorted(time for time, _, _ in operations)
    _, place, operation = operations[0]
    header, done = operation.header, operation.coll_perf
    kind = kind_at(place, done.coll)
    record = Record(
        source=f"NCCL Inspector ({path.name})",
        cluster="",
        library="nccl",
        backend="nccl",
        collective=kind,
        num_nodes=header.nnodes,
        ranks=header.n_ranks,
        nbytes=done.coll_msg_size_bytes * (header.n_ranks if kind in _PARTS else 1),
        time_s=median(times) / 1e6,
        statistic=_STATISTIC,
        min_s=times[0] / 1e6,
        max_s=times[-1] / 1e6,
        p95_s=times[-1 - len(times) // 20] / 1e6,
        iterations=len(times),
        fingerprint={"timing_source": done.coll_timing_source} if done.coll_timing_source else {},
    )
    return sound(record, place)
