"""A site's bus bandwidths by number of nodes: CSV with a heading, or a JSON list of objects.

Columns are ``collective``, ``nodes`` or ``gpus``, ``busbw`` (GB/s, as nccl-tests defines it) and, if known,
``size`` (bytes, or text such as 1G). Others are ignored.
"""

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ringside.sim.record import RecordError
from ringside.topologies.units import parse_size
from ringside.validation.readers.reading import MAX_RANKS, kind_at

LARGE = 1 << 30
"""The size of a row without one: large enough for a fabric's bandwidth."""

COUNTS = ("nodes", "gpus")
RATES = ("busbw", "busbw_gbps")


class SiteBandwidth(NamedTuple):
    """A row: bytes/s on a number of nodes or of GPUs; 0 is unknown."""

    collective: str
    nodes: int
    gpus: int
    busbw: float
    nbytes: int
    place: str


def is_bandwidth_table(text: str) -> bool:
    """Return whether a file's content is such a table: its heading, or its first object, has the columns."""
    if text.lstrip().startswith("["):
        try:
            rows = json.loads(text)
        except ValueError:
            return False
        return bool(rows) and isinstance(rows[0], dict) and _has_columns(rows[0])
    return _has_columns(next(csv.reader(text.lstrip().splitlines()[:1]), []))


def read_bandwidth_table(text: str, path: Path) -> list[SiteBandwidth]:
    """Read the rows; raise `RecordError` with the place of a bad one."""
    if text.lstrip().startswith("["):
        return [_row(row, f"{path}, item {number}") for number, row in enumerate(json.loads(text), start=1)]
    rows = csv.DictReader(text.strip().splitlines())
    table = [_row(row, f"{path}, line {number}") for number, row in enumerate(rows, start=2)]
    if not table:
        raise RecordError(f"{path}: no row below the heading; write collective, nodes and busbw of each")
    return table


def _has_columns(names: Any) -> bool:
    lower = {str(name).strip().lower() for name in names}
    return "collective" in lower and bool(lower & set(COUNTS)) and bool(lower & set(RATES))


def _row(row: Any, place: str) -> SiteBandwidth:
    if not isinstance(row, dict):
        raise RecordError(f"{place}: not an object with collective, nodes and busbw")
    cells = {str(name).strip().lower(): str(cell).strip() for name, cell in row.items() if cell is not None}
    nodes, gpus = (_count(cells, name, place) for name in COUNTS)
    if not nodes and not gpus:
        raise RecordError(f"{place}: neither nodes nor gpus; write one of them")
    try:
        rate = 1e9 * float(next(cells[name] for name in RATES if cells.get(name)))
    except (StopIteration, ValueError):
        rate = math.nan
    if not 0 < rate < math.inf:
        raise RecordError(f"{place}: no finite bus bandwidth above 0; write GB/s under busbw")
    kind = kind_at(place, cells.get("collective", ""))
    return SiteBandwidth(kind, nodes, gpus, rate, _nbytes(cells, place), place)


def _count(cells: Mapping[str, str], name: str, place: str) -> int:
    text = cells.get(name, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:12]) <= MAX_RANKS and len(text) <= 12):
        raise RecordError(f"{place}: {text!r} {name}; write a whole number from 1 to {MAX_RANKS}")
    return int(text)


def _nbytes(cells: Mapping[str, str], place: str) -> int:
    text = cells.get("size", "")
    if not text:
        return LARGE
    try:
        nbytes = parse_size(text)
    except ValueError as error:
        raise RecordError(f"{place}: {error}") from None
    if nbytes < 1:
        raise RecordError(f"{place}: a size of {text}; write 1 byte or more, or leave it out")
    return nbytes
