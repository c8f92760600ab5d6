"""A worker's task: ask the question of each point, and record the files that its answer depends on.

A question names a cluster's file, a script or a model; that one imports or reads others; and Ringside itself
may be an edited checkout. So the record comes not from the question, but from the files that a process opens
while it answers, and the modules of Ringside that it has loaded.

A name is a path, relative to the working directory if inside it; after ``ringside:`` it is relative to
Ringside's installation. Files of Python, its other packages or the system are left out.
"""

import math
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from hashlib import file_digest
from importlib.util import source_from_cache
from pathlib import Path
from stat import S_ISREG
from sysconfig import get_path
from threading import Lock
from time import perf_counter
from types import ModuleType
from typing import Any, NamedTuple

from ringside.errors import message
from ringside.studies.study import CLOCK, OWN, Query, StudyError, Value, text_of

Inputs = dict[str, str]
"""Names of files, and the digests of their content."""

CHANGING = ""
"""Used instead of a digest if the file changed between openings."""

OURS = "ringside:"
"""The prefix of names of Ringside's own files."""

_HOME = str(Path(__file__).parents[1])

_PACKAGES = {"site-packages", "dist-packages"}

_OF_THE_SYSTEM = tuple(
    f"{folder}/" for folder in ("/dev", "/etc", "/proc", "/run", "/sys", get_path("stdlib"))
)

_notes: dict[int, Inputs] = {}
"""Recordings in progress, one per answering thread."""

_held: Inputs = {}
"""Ringside's own files that this process may use without opening them again."""

_own = threading.local()


@contextmanager
def noted() -> Iterator[Inputs]:
    """Yield the files that this process depends on; complete at the end of the block."""
    _listen()
    inputs: Inputs = {}
    _notes[id(inputs)] = inputs
    try:
        yield inputs
    finally:
        del _notes[id(inputs)]
        for name in filter(_is_temporary, list(inputs)):
            del inputs[name]
        _add_held(inputs)


def digests(names: Iterable[str]) -> dict[str, str | None]:
    """Return the digests of the files now; None for missing ones."""
    return {name: _digest(_path(name)) for name in names}


@cache
def _listen() -> None:
    """Install the audit hook for opened files, for the life of this process."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _notes or getattr(_own, "reads", False):
        return
    path, _, flags = arguments
    if isinstance(path, int) or flags & (os.O_WRONLY | os.O_RDWR):
        return
    _own.reads = True
    try:
        name = _name(os.fsdecode(path))
        digest = _digest(_path(name)) if name else None
        if name and digest:
            for inputs in list(_notes.values()):
                inputs[name] = digest if inputs.get(name, digest) == digest else CHANGING
    finally:
        _own.reads = False


def _add_held(inputs: Inputs) -> None:
    """Add Ringside's own files that this process does not open again: modules, and data read once."""
    modules = {_name(file) for file in map(_file_of, list(sys.modules.values())) if file}
    for name in filter(None, (modules | _data()) - _held.keys()):
        digest = _digest(_path(name)) if name.startswith(OURS) else None
        if digest:
            _held[name] = digest
    for name in filter(lambda name: name.startswith(OURS), inputs):
        _held.setdefault(name, inputs[name])
    inputs.update({**_held, **inputs})


@cache
def _data() -> set[str]:
    """Return files read once per process, perhaps before the recording: calibrations and graphs."""
    files = (Path(_HOME) / "sim").rglob("*.*")
    return {
        OURS + str(file.relative_to(_HOME)) for file in files if file.suffix in {".csv", ".json", ".yaml"}
    }


def _file_of(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def _is_temporary(name: str) -> bool:
    return not os.path.exists(_path(name))


def _name(path: str) -> str | None:
    """Return a file's name, that of its source for a compiled one; None if it is not recorded."""
    path = os.path.abspath(path)
    if "__pycache__" in path:
        try:
            path = source_from_cache(path)
        except ValueError:  # compiled in another way
            return None
    if path.startswith(f"{_HOME}/"):
        return OURS + path[len(_HOME) + 1 :]
    if path.startswith(_OF_THE_SYSTEM) or not _PACKAGES.isdisjoint(path.split("/")):
        return None
    near = os.path.relpath(path)
    return path if near.split("/")[0] == ".." else near


def _path(name: str) -> str:
    return os.path.join(_HOME, name.removeprefix(OURS)) if name.startswith(OURS) else name


def _digest(path: str) -> str | None:
    """Return the digest of a file; None without a regular file."""
    try:
        known = os.stat(path)
        if not S_ISREG(known.st_mode):
            return None
        return _digest_of(path, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns)
    except OSError:
        return None


@lru_cache(maxsize=4096)
def _digest_of(path: str, *_: int) -> str:
    """Return the digest, cached by more than the path, so that each state of a file is read once."""
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()[:16]


Row = dict[str, Any]

Point = tuple[int, dict[str, Value]]
"""A point's number, and its values."""


class Answered(NamedTuple):
    """The rows of one batch of points, in order, and the files that they depend on."""

    rows: list[Row]
    inputs: Inputs


_one_at_a_time = Lock()
"""A lock: other clusters' workers may have several threads, but a program's script is loaded per process."""


def row_of(query: Query, point: int, values: Mapping[str, Value]) -> Row:
    """Return the row of one point: its number, its parameters, its answer or its error."""
    begun = perf_counter()
    answer, error = _answer(query, values)
    taken = {*OWN, *values}
    named = {f"answer_{name}" if name in taken else name: value for name, value in answer.items()}
    texts = {name: text_of(value) for name, value in values.items()}
    return {"point": point, **texts, **named, "error": error, CLOCK: perf_counter() - begun}


def answer_points(query: Query, points: Sequence[Point], seconds: float) -> Answered:
    """Answer at least one point; stop after ``seconds``."""
    begun, rows = perf_counter(), []
    with noted() as inputs:
        for point in points:
            rows.append(row_of(query, *point))
            if perf_counter() - begun > seconds:
                break
    return Answered(rows, inputs)


def rows_of(query: Query, points: Sequence[Point]) -> list[Row]:
    """Return the rows of several points, in order."""
    return [row_of(query, *point) for point in points]


def _answer(query: Query, values: Mapping[str, Value]) -> tuple[Row, str | None]:
    """Return an answer's columns, or an error message."""
    try:
        with _one_at_a_time:
            answer = query.question(values).ask()
        return _flat(getattr(answer, "totals", {}), answer.rows, query.figure), None
    except Exception as error:
        return {}, message(error)


def _flat(totals: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], figure: str) -> Row:
    """Return the columns of an answer: those of the whole, and those of its single row.

    If the whole answer has the ``figure``, its rows are parts and left out.
    """
    columns = dict(_columns(totals))
    if figure not in totals:
        if len(rows) != 1:
            raise StudyError(f"{len(rows)} rows in one answer; write one size and one count")
        columns |= _columns(rows[0])
    if figure not in columns:
        raise StudyError(f"the answer has no {figure}")
    return columns


def _columns(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and single values; compound values as ``mesh_tensor``; lists are left out."""
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _columns(value, f"{name}_")
        elif isinstance(value, bool | str):
            yield name, value
        elif isinstance(value, int | float):
            if not math.isfinite(value):
                raise ArithmeticError(f"{name} is {value}, which is not a valid answer")
            yield name, float(value)
