"""The JSON of published measurements: one run per file, with its source and machine beside its rows."""

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ringside.sim.collective import KINDS, kind_of
from ringside.sim.record import Record, RecordError
from ringside.validation.readers.nccl_tests_run import launched
from ringside.validation.readers.reading import (
    NCCL_TESTS_STATISTIC,
    Reading,
    complaint,
    dtype_of,
    seconds,
    sound,
)

_KEPT = (
    "id",
    "gpu",
    "gpus_per_node",
    "intra_node",
    "inter_node",
    "nccl_version",
    "environment",
    "command",
    "healthy",
    "description_confidence",
)

_HELD_UP = 2.0
"""The factor over its in-place repeat above which a row was disturbed: both move the same bytes."""


class _Row(BaseModel):
    model_config = ConfigDict(strict=True)

    n_nodes: int
    n_ranks: int
    size_bytes: int
    time_us: float | None = None
    in_place_time_us: float | None = None
    time_from: str | None = None


class _Run(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str | None = None
    cluster: str
    site: str | None = None
    source: str | None = None
    collective: str
    algorithm: str | None = None
    protocol: str | None = None
    gpu: str | None = None
    gpus_per_node: int | None = None
    intra_node: str | None = None
    inter_node: str | None = None
    nccl_version: str | None = None
    environment: str | None = None
    command: str | None = None
    dtype: str | None = None
    redop: str | None = None
    statistic: str | None = None
    healthy: bool | None = None
    description_confidence: str | None = None
    rows: list[_Row]


def read_published(content: dict[str, Any], path: Path) -> Reading:
    """Read all rows of one file."""
    try:
        run = _Run.model_validate(content)
        kind = kind_of(run.collective)
    except ValidationError as error:
        raise complaint(error, str(path)) from None
    except ValueError as error:
        raise RecordError(f"{path}: collective: {error}") from None
    converted = [_record(run, kind, row, f"{path}, rows.{i}") for i, row in enumerate(run.rows)]
    records = tuple(record for record in converted if record is not None)
    return Reading(records, len(converted) - len(records))


def _record(run: _Run, kind: str, row: _Row, place: str) -> Record | None:
    out_of_place, in_place = seconds(row.time_us), seconds(row.in_place_time_us)
    held_up = out_of_place is not None and in_place is not None and out_of_place > _HELD_UP * in_place
    taken_in_place = out_of_place is None or held_up
    time_s = in_place if taken_in_place else out_of_place
    if time_s is None or row.size_bytes == 0:
        return None
    version = re.search(r"\d+(?:\.\d+)+", run.nccl_version or "")
    print_ = {key: getattr(run, key) for key in _KEPT} | {"time_from": row.time_from}
    record = Record(
        source=run.source or "published",
        cluster=run.cluster,
        site=run.site or "",
        library="nccl",
        library_version=version[0] if version else "",
        backend="nccl",
        collective=kind,
        algorithm=run.algorithm or "auto",
        protocol=run.protocol or "auto",
        num_nodes=row.n_nodes,
        ranks=row.n_ranks,
        nbytes=row.size_bytes,
        dtype=dtype_of(run.dtype or ""),
        redop=(run.redop or "") if KINDS[kind].reduces else "",
        in_place=taken_in_place,
        time_s=time_s,
        statistic=run.statistic or NCCL_TESTS_STATISTIC,
        fingerprint={key: str(value) for key, value in print_.items() if value is not None}
        | launched(*(_option(letter, run.command or "") for letter in "tg")),
    )
    return sound(record, place)


def _option(letter: str, command: str) -> int:
    """Return nccl-tests' ``-t`` or ``-g`` of a command, 1 by default."""
    match = re.search(rf"(?<!\S)-{letter}\s*(\d{{1,4}})(?!\S)", command)
    return int(match[1]) if match else 1
