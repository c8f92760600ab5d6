"""One row of data: how long one collective took, measured or simulated, and under what circumstances.

Records are stored as JSON lines, one record per line, so that ``cat`` joins files of many runs. Format
history: 1 (2026-11) first version.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ringside.sim.collective import ITEMSIZE, KINDS, REDOPS, Collective
from ringside.topologies.disk import add_lines, regular, write_file

VERSION = 1

DDP_SCHEMA = "ringside.ddp/1"
"""Schema of training steps: `ringside.sim.training.ddp.step`."""

TRAINING_SCHEMA = "ringside.training/1"
"""Schema of steps of other strategies: `ringside.real.training.record`."""

COMPUTE_SCHEMA = "ringside.compute/1"
"""Schema of measured rates of computing: `ringside.sim.compute.grids`."""


Steps = TypeVar("Steps")


class RecordError(ValueError):
    """Measurements that cannot be read or must not be mixed; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measured or simulated collective at one size.

    ``nbytes`` is nccl-tests' size. ``time_s`` is the ``statistic`` over ``iterations``; Ringside's is the
    median over iterations of the slowest rank, nccl-tests' the mean. ``library`` decides how the collective
    is carried out: a library's own choice (``nccl``, ``gloo``), or ``ideal`` where a Ringside schedule ran
    over ``backend``'s send and receive. ``cluster`` names the kind of machine, ``site`` its location. Unknown
    is empty or 0.
    """

    source: str
    cluster: str
    site: str = ""
    library: str
    library_version: str = ""
    backend: str = ""
    collective: str
    algorithm: str = "auto"
    protocol: str = "auto"
    num_nodes: int
    ranks: int
    nbytes: int
    dtype: str = ""
    redop: str = ""
    in_place: bool = False
    time_s: float
    statistic: str
    min_s: float = 0.0
    max_s: float = 0.0
    p95_s: float = 0.0
    iterations: int = 0
    date: str = ""
    fingerprint: dict[str, str] = field(default_factory=dict)

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in bytes/s, as nccl-tests defines it."""
        return self.nbytes / self.time_s if self.time_s else 0.0

    @property
    def busbw(self) -> float:
        """Bus bandwidth in bytes/s, as nccl-tests defines it."""
        return self.algbw * KINDS[self.collective].busbw_factor(self.ranks)

    @property
    def spread(self) -> float:
        """Half the range from the fastest to the 95th percentile iteration over ``time_s``; 0 if unknown."""
        return max(self.p95_s - self.min_s, 0.0) / (2 * self.time_s) if self.time_s and self.p95_s else 0.0


_ADAPTER = TypeAdapter(Record)


def to_fields(record: Record) -> dict[str, Any]:
    """Return the record's JSON fields, bandwidths included for readers without Ringside."""
    derived = {"algbw_GBps": record.algbw / 1e9, "busbw_GBps": record.busbw / 1e9}
    return {"record": VERSION, **asdict(record), **derived}


def to_line(record: Record) -> str:
    """Return the record as one line of JSON."""
    return json.dumps(to_fields(record))


def collective_of(record: Record) -> Collective:
    """Return the collective; without a known dtype, with four bytes per element."""
    dtype = record.dtype if record.dtype in ITEMSIZE else None
    redop = record.redop if record.redop in REDOPS else "sum"
    return Collective(
        record.collective, record.ranks, record.nbytes, ITEMSIZE.get(dtype or "", 4), dtype=dtype, redop=redop
    )


def digest(record: Record) -> str:
    """Return the record's identity: twelve hex digits of its text's hash."""
    return hashlib.sha256(to_line(record).encode()).hexdigest()[:12]


def from_line(line: str, place: str) -> Record:
    """Return the record on one line; ``place`` locates it in errors."""
    try:
        content: dict[str, Any] = json.loads(line)
        version = content.pop("record")
    except RecursionError:
        raise RecordError(f"{place}: JSON nested too deeply; a record is one flat object") from None
    except (ValueError, AttributeError, KeyError, TypeError):
        raise RecordError(
            f"{place}: not a record; a record is one JSON object per line with 'record'"
        ) from None
    if version != VERSION:
        raise RecordError(f"{place}: record version {version!r}; this Ringside reads version {VERSION}")
    for derived in ("algbw_GBps", "busbw_GBps"):
        content.pop(derived, None)
    try:
        return _ADAPTER.validate_python(content)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors(include_url=False)
        )
        raise RecordError(f"{place}: {problems}") from None


def read_lines(text: str, name: str) -> list[Record]:
    """Return all records of a JSON lines file's text."""
    return [
        from_line(line, f"{name}, line {number}")
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]


def write(records: Iterable[Record], path: Path) -> None:
    """Write a file atomically: it appears, or changes, at once."""
    write_file(path, "".join(to_line(record) + "\n" for record in records))


def add(record: Record, path: Path) -> None:
    """Append a record to a file, to which other processes may append at the same time."""
    add_lines(path, to_line(record) + "\n")


def schema_of(path: Path) -> str | None:
    """Return the schema of a file of training steps or rates; None for any other file."""
    try:
        with regular(path).open("rb") as file:
            begin = file.read(64)
    except OSError:
        return None
    schemas = (DDP_SCHEMA, TRAINING_SCHEMA, COMPUTE_SCHEMA)
    return next((schema for schema in schemas if schema.encode() in begin), None)


def read_steps(path: Path, schema: str, adapter: TypeAdapter[Steps], command: str) -> Steps:
    """Return what a file contains; raise `RecordError` with all errors and the command that makes one."""
    again = f"make one with {command}"
    try:
        content = json.loads(regular(path).read_text(encoding="utf-8"))
    except RecursionError:
        raise RecordError(f"{path}: JSON nested too deeply; {again}") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read: {error}; {again}") from None
    if not isinstance(content, dict) or content.pop("schema", None) != schema:
        raise RecordError(f"{path}: no {schema} file; {again}")
    try:
        return adapter.validate_python(content)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors(include_url=False)]
        raise RecordError("\n".join(f"{path}: {line}" for line in lines)) from None
