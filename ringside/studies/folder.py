"""Where a study's rows are kept: a folder that a killed study finds as it was.

``study.json`` says which study it is, which columns its first answer had, and which files rows were made
from. Rows stand in part files, each renamed into place when all of it is on the disk, each point in one of
them; nothing else there ends in ``.parquet``.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ringside.studies.asking import Row
from ringside.studies.inputs import OURS, Inputs
from ringside.studies.study import CLOCK, OWN, Study, StudyError
from ringside.topologies.disk import note_written, write_file

MANIFEST = "study.json"

_LOCK = ".lock"

_TYPES = {"bool": pa.bool_(), "float": pa.float64(), "str": pa.string()}


@dataclass(slots=True)
class Folder:
    """The folder of one study, which this process has to itself, or may only read."""

    path: Path
    study: Study
    columns: dict[str, str] = field(default_factory=dict)
    """The answers' columns that every file has, with types: those of the first answer, none before it."""
    inputs: Inputs = field(default_factory=dict)
    """The files that its rows were made from."""
    unwritable: str = ""
    """Why nothing can be written there, if so."""

    @property
    def parts(self) -> list[Path]:
        """The part files, in order of their first points."""
        return sorted(self.path.glob("part-*.parquet"))

    def done(self) -> set[int]:
        """The points that have a row."""
        return {point for part in self.parts for point in _table(part)["point"].to_pylist()}

    def learn(self, row: Row) -> None:
        """Take the columns of the first answer for those of every file."""
        self.columns = self._found([row], {})
        self._write_manifest()

    def check(self, now: Mapping[str, str | None], *, finished: bool = False) -> None:
        """Refuse files that are not what rows were made from; one of a finished study may be gone."""
        here = {name: digest for name, digest in now.items() if digest is not None or not finished}
        changed = [
            name for name, digest in here.items() if not digest or digest != self.inputs.get(name, digest)
        ]
        if changed:
            names = [_shown(name) for name in sorted(changed, key=lambda name: name.startswith(OURS))]
            more = f" and {len(names) - 3} others" if len(names) > 3 else ""
            raise StudyError(
                f"{self.path}: {', '.join(names[:3])}{more}: not what its rows were made from; put back what "
                "it was, or write a new folder after -o"
            )

    def check_writable(self) -> None:
        """Refuse a folder that no row can be written to."""
        if self.unwritable:
            raise StudyError(
                f"{self.path}: nothing can be written there: {self.unwritable}; write another folder after -o"
            )

    def take(self, inputs: Inputs) -> None:
        """Remember what rows that come are made from; refuse files that were others for those there are."""
        self.check(inputs)
        if inputs.keys() - self.inputs.keys():
            self.inputs |= inputs
            self._write_manifest()

    def write(self, rows: Sequence[Row]) -> None:
        """Keep some rows, in a file of their own; what only these answers tell has columns here alone."""
        columns = self._found(rows, self.columns)
        table = pa.Table.from_pylist([_fitted(row, columns) for row in rows], schema=self._schema(columns))
        target = self.path / f"part-{min(row['point'] for row in rows):08d}.parquet"
        beside = target.with_suffix(".unfinished")
        with beside.open("wb") as file:
            pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
        note_written(target)

    def read(self) -> pd.DataFrame:
        """All rows that are there, in order of their points."""
        tables = [self._schema(self.columns).empty_table(), *map(_table, self.parts)]
        rows: pd.DataFrame = pa.concat_tables(tables, promote_options="default").to_pandas()
        last = ["error", CLOCK]
        return rows.sort_values("point", ignore_index=True)[[*rows.columns.drop(last), *last]]

    def _found(self, rows: Sequence[Row], known: dict[str, str]) -> dict[str, str]:
        """The answers' columns: those known, then others in the order in which rows have them."""
        columns = dict(known)
        for row in rows:
            for name, value in row.items():
                if name not in (*OWN, *self.study.parameters):
                    columns.setdefault(name, type(value).__name__)
        return columns

    def _schema(self, columns: dict[str, str]) -> pa.Schema:
        return pa.schema(
            [
                ("point", pa.int64()),
                *((name, pa.string()) for name in self.study.parameters),
                *((name, _TYPES[kind]) for name, kind in columns.items()),
                ("error", pa.string()),
                (CLOCK, pa.float64()),
            ]
        )

    def _write_manifest(self) -> None:
        content = {"schema": "ringside.study/1", "version": version("ringside"),
                   "study": _plain(self.study), "columns": self.columns,
                   "inputs": dict(sorted(self.inputs.items()))}  # fmt: skip
        write_file(self.path / MANIFEST, json.dumps(content, indent=2) + "\n")


@contextmanager
def opened(path: Path, study: Study) -> Iterator[Folder]:
    """The folder of a study, begun or gone on with; refuse one of another study, or in use."""
    if path.exists() and not path.is_dir():
        raise StudyError(f"{path}: it is no folder; write a new one after -o")
    folder = Folder(path, study)
    with _locked(folder):
        if (path / MANIFEST).exists():
            folder.columns, folder.inputs = _same_study(path, study)
        else:
            folder._write_manifest()
        yield folder


@contextmanager
def _locked(folder: Folder) -> Iterator[None]:
    """The folder, made where it is not there, for this process alone; only to be read on a disk that is."""
    path, lock = folder.path, None
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not (path / MANIFEST).exists() and any(not _is_passing(file) for file in path.iterdir()):
            raise StudyError(f"{path}: it holds something else than a study; write a new folder after -o")
        lock = (path / _LOCK).open("w")
    except OSError as error:
        folder.unwritable = str(error.strerror)
    if lock is None:
        if not (path / MANIFEST).exists():
            folder.check_writable()
        yield
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(f"{path}: another process is at this study; wait for it, or stop it") from None
        for file in path.iterdir():
            if _is_passing(file) and file.name != _LOCK:
                file.unlink()
        yield


def _shown(name: str) -> str:
    return f"{name.removeprefix(OURS)} of Ringside" if name.startswith(OURS) else name


def _table(part: Path) -> pa.Table:
    """The rows of a part file; refuse what is none, which no kill leaves but a disk may."""
    try:
        table = pq.read_table(part)
    except (OSError, pa.ArrowException):
        table = None
    if table is None or not {"point", "error", CLOCK} <= {*table.column_names}:
        raise StudyError(
            f"{part}: it is damaged, or no part of a study; delete it, and its points are asked again"
        )
    return table


def _is_passing(file: Path) -> bool:
    """Whether this is what a killed process may leave: nothing of it counts."""
    return file.name == _LOCK or file.name.startswith(".ringside.") or file.suffix == ".unfinished"


def _same_study(path: Path, study: Study) -> tuple[dict[str, str], Inputs]:
    """The columns and the inputs of the study that was begun there, if it is this one."""
    try:
        found = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        before, made_by, columns = dict(found["study"]), found["version"], dict(found["columns"])
        inputs = dict(found["inputs"]) if "inputs" in found else None
        if not {*columns.values()} <= {*_TYPES}:
            raise ValueError("columns of no known type")
    except (OSError, ValueError, KeyError, TypeError):
        raise StudyError(f"{path / MANIFEST}: cannot be read; write a new folder after -o") from None
    now = _plain(study)
    changed = [key for key in now if now[key] != before.get(key)]
    if changed:
        raise StudyError(
            f"{path}: it holds another study, whose {', '.join(changed)} differs; write a new folder after -o"
        )
    if made_by != version("ringside") or inputs is None:
        raise StudyError(
            f"{path}: ringside {made_by} began it, whose answers may differ; write a new folder after -o"
        )
    return columns, inputs


def _plain(study: Study) -> dict[str, Any]:
    """What makes rows what they are; which column pictures are about may change."""
    plain: dict[str, Any] = study.model_dump(mode="json", by_alias=True, exclude={"answer"})
    return plain


def _fitted(row: Row, columns: dict[str, str]) -> Row:
    """The row as the columns have it; of what has another type than in the answer before it tells."""
    odd = [name for name, kind in columns.items() if name in row and type(row[name]).__name__ != kind]
    if not odd:
        return row
    error = "; ".join(f"{name} is {row[name]!r}, of another type than in another answer" for name in odd)
    return {**row, **dict.fromkeys(odd), "error": row["error"] or error}
