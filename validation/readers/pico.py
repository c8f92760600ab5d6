"""PICO's CSV of MPI collectives: a row per system, collective, algorithm and buffer, median nanoseconds.

Columns are recognised by name (github.com/HLC-Lab/pico; its summaries say ``collective_type``, ``algo_name``
and ``buffer_size``, and need a node count added). A buffer is a rank's total over all blocks. Buffers in GPU
memory are a site of their own. Tasks per node may be in the free text of ``notes`` ("4 tasks per node"),
beside a column that says 1. Rows of algorithms that MPI's model does not have are skipped, and rows of fewer
elements than ranks, which sent nothing.
"""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringside.sim.collective import ITEMSIZE, KINDS
from ringside.sim.libraries.mpi.rounds import ROUNDS
from ringside.sim.record import Record, RecordError
from ringside.validation.readers.reading import EXPECTED, Reading, dtype_of, kind_at, sound

_COLUMNS = {
    "collective": ("collective", "collective_type"),
    "algorithm": ("algorithm", "algo_name"),
    "bytes": ("buffer_bytes", "buffer_size"),
    "nodes": ("nnodes", "nodes", "Nodes"),
    "median": ("median_ns", "median"),
}
_OPTIONAL = {
    "each": ("tasks_per_node",),
    "system": ("system", "System"),
    "dtype": ("dtype", "datatype"),
    "gpu": ("gpu",),
    "mpi": ("mpi_lib",),
    "version": ("mpi_version",),
    "iterations": ("iters",),
    "notes": ("notes",),
}

_NOTED_TASKS = re.compile(r"\b(\d+) ?(?:tasks?|ranks?|proc(?:esse)?s) ?(?:per|a|/) ?node\b", re.IGNORECASE)

_NAMES = {"linear_synch": "linear_sync", "neighbor_exchange": "neighbor"}
_SYSTEMS = {"mare_nostrum": "mare-nostrum"}
_LIBRARIES = {"OMPI": "Open MPI"}
STATISTIC = "median over iterations of the slowest rank"


def is_pico(text: str) -> bool:
    """Return whether the first line is a header of such a CSV."""
    return _found(text.partition("\n")[0].strip().split(",")) is not None


def read_pico(text: str, path: Path) -> Reading:
    """Read all rows; those without a time are counted as skipped."""
    lines = csv.DictReader(text.splitlines())
    columns = _found(lines.fieldnames or ())
    if columns is None:
        raise RecordError(f"{path}: not a CSV of PICO's; {EXPECTED}")
    records, skipped = [], 0
    for number, row in enumerate(lines, start=2):
        record = _record(row, columns, f"{path}, line {number}")
        if record is None:
            skipped += 1
        else:
            records.append(record)
    return Reading(tuple(records), skipped)


def _found(names: Sequence[str]) -> dict[str, str] | None:
    """Return the column of each field; ``None`` where a required one is missing."""
    columns = {key: name for key, known in (_COLUMNS | _OPTIONAL).items() for name in known if name in names}
    return columns if set(_COLUMNS) <= set(columns) else None


def _record(row: Mapping[str, str | None], columns: Mapping[str, str], place: str) -> Record | None:
    cells = {key: (row.get(name) or "").strip() for key, name in columns.items()}
    time_ns = _number(cells["median"], place, "median")
    nbytes, nodes = int(_number(cells["bytes"], place, "bytes")), _product(cells["nodes"], place)
    each = _tasks_per_node(cells, place)
    if time_ns <= 0 or nbytes <= 0:
        return None
    if nodes < 1 or each < 1:
        raise RecordError(f"{place}: {nodes} nodes with {each} tasks each; expected 1 or more")
    kind, algorithm = _kind(cells["collective"], place), _algorithm(cells["algorithm"])
    if algorithm not in ("auto", *ROUNDS[kind]):
        return None
    dtype = dtype_of(cells.get("dtype", ""))
    if KINDS[kind].blocks and nbytes < nodes * each * ITEMSIZE.get(dtype, 1):
        return None
    system = cells.get("system", "")
    mpi = _LIBRARIES.get(cells.get("mpi", "").split(" ")[0], cells.get("mpi", "").split(" ")[0])
    version = cells.get("version") or cells.get("mpi", "").partition(" ")[2]
    record = Record(
        source="PICO (github.com/HLC-Lab/pico)",
        cluster=_SYSTEMS.get(system, system) or "mpi",
        site=f"{system}, GPU memory" if cells.get("gpu") == "yes" else system,
        library="mpi",
        library_version=f"{mpi} {version}".strip(),
        backend="mpi",
        collective=kind,
        algorithm=algorithm,
        num_nodes=nodes,
        ranks=nodes * each,
        nbytes=nbytes,
        dtype=dtype,
        time_s=time_ns * 1e-9,
        statistic=STATISTIC,
        iterations=int(cells["iterations"]) if cells.get("iterations", "").isdecimal() else 0,
        fingerprint={"algorithm": cells["algorithm"]},
    )
    return sound(record, place)


def _tasks_per_node(cells: Mapping[str, str], place: str) -> int:
    """Return the notes' number, unless the column has more than one; raise where they contradict."""
    column = int(_number(cells.get("each") or "1", place, "tasks_per_node"))
    noted = _NOTED_TASKS.search(cells.get("notes", ""))
    if noted is None:
        return column
    if column not in (1, int(noted[1])):
        raise RecordError(f"{place}: tasks_per_node is {column}, but the notes say {noted[0]!r}; correct one")
    return int(noted[1])


def _kind(text: str, place: str) -> str:
    return kind_at(place, "broadcast" if text.lower() == "bcast" else text)


def _product(text: str, place: str) -> int:
    """Parse a node count, which may be a torus': ``4x4x4``."""
    return math.prod(int(_number(part, place, "nodes")) for part in text.split("x"))


def _algorithm(text: str) -> str:
    """Return Open MPI's name, without its implementation (the library's or PICO's)."""
    bare = text.lower().removeprefix("default-").replace("-", "_")
    for suffix in ("_ompi", "_over", "_mpich"):
        bare = bare.removesuffix(suffix)
    return "auto" if bare == "default" else _NAMES.get(bare, bare)


def _number(text: str, place: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RecordError(f"{place}: {what} is {text!r}; expected a number")
    return value
