"""rccl-tests' own JSON (``-Z json -x FILE``): an array of rows, or a row per line.

A row is one size in or out of place of one cycle, with its ranks and nodes.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ringside.sim.collective import KINDS
from ringside.sim.record import Record
from ringside.validation.readers.reading import (
    NCCL_TESTS_STATISTIC,
    Reading,
    complaint,
    dtype_of,
    kind_at,
    seconds,
    sound,
)


class _Row(BaseModel):
    model_config = ConfigDict(strict=True)

    numCycle: int = 0  # noqa: N815
    name: str
    nodes: int
    ranks: int
    gpusPerRank: int = 1  # noqa: N815
    size: int
    type: str
    redop: str = ""
    inPlace: int  # noqa: N815
    time: float | None


def is_row(content: Any) -> bool:
    """Return whether a JSON value is one of rccl-tests' rows."""
    return isinstance(content, dict) and {"numCycle", "busBw", "size"} <= content.keys()


def read_rccl_tests(objects: list[tuple[str, Any]], path: Path) -> Reading:
    """Read all rows, given with their places: out of place, or in place without the former."""
    halves: dict[tuple[int, str, int, str, str], dict[bool, tuple[str, _Row]]] = {}
    for place, content in objects:
        try:
            row = _Row.model_validate(content)
        except ValidationError as error:
            raise complaint(error, place) from None
        key = row.numCycle, row.name, row.size, row.type, row.redop
        halves.setdefault(key, {})[bool(row.inPlace)] = place, row
    records = [_record(path, *(both.get(False) or both[True])) for both in halves.values()]
    kept = tuple(record for record in records if record is not None)
    return Reading(kept, len(records) - len(kept))


def _record(path: Path, place: str, row: _Row) -> Record | None:
    time_s = seconds(row.time)
    if time_s is None or row.size == 0:
        return None
    kind = kind_at(place, row.name)
    record = Record(
        source=f"rccl-tests ({path.name})",
        cluster="",
        library="rccl",
        backend="rccl",
        collective=kind,
        num_nodes=row.nodes,
        ranks=row.ranks,
        nbytes=row.size,
        dtype=dtype_of(row.type),
        redop=row.redop if KINDS[kind].reduces else "",
        in_place=bool(row.inPlace),
        time_s=time_s,
        statistic=NCCL_TESTS_STATISTIC,
        fingerprint={"gpus_per_thread": str(row.gpusPerRank)} if row.gpusPerRank > 1 else {},
    )
    return sound(record, place)
