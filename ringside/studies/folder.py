"""The folder of a study's rows, which survives a kill.

``study.json`` has the study, the columns of its first answer, and the files that rows depend on. Rows are in
part files, each renamed into place when complete on the disk, each point in one of them; no other file there
ends in ``.parquet``.
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

from ringside.studies.inputs import OURS, Inputs, Row
from ringside.studies.study import CLOCK, OWN, Study, StudyError
from ringside.topologies.disk import note_written, write_file

MANIFEST = "study.json"

_LOCK = ".lock"

_TYPES = {"bool": pa.bool_(), "float": pa.float64(), "str": pa.string()}


@dataclass(slots=True)
class Folder:
    """The folder of one study, exclusive to this process, or read-only."""

    path: Path
    study: Study
    columns: dict[str, str] = field(default_factory=dict)
    """The answers' columns in every file, with types: those of the first answer, none before it."""
    inputs: Inputs = field(default_factory=dict)
    """The files that its rows depend on."""
    unwritable: str = ""
    """The reason why the folder is not writable, if so."""

    @property
    def parts(self) -> list[Path]:
        """The part files, in order of their first points."""
        return sorted(self.path.glob("part-*.parquet"))

    def done(self) -> set[int]:
        """Return the points that have a row."""
        return {point for part in self.parts for point in _table(part)["point"].to_pylist()}

    def learn(self, row: Row) -> None:
        """Fix the columns of every file to those of the first answer."""
        self.columns = self._found([row], {})
        self._write_manifest()

    def check(self, now: Mapping[str, str | None], *, finished: bool = False) -> None:
        """Raise StudyError for changed input files; those of a finished study may be gone."""
        here = {name: digest for name, digest in now.items() if digest is not None or not finished}
        changed = [
            name for name, digest in here.items() if not digest or digest != self.inputs.get(name, digest)
        ]
        if changed:
            names = [_shown(name) for name in sorted(changed, key=lambda name: name.startswith(OURS))]
            more = f" and {len(names) - 3} others" if len(names) > 3 else ""
            raise StudyError(
                f"{self.path}: {', '.join(names[:3])}{more}: changed since its rows were made; restore "
                "them, or write a new folder after -o"
            )

    def check_writable(self) -> None:
        """Raise StudyError for a folder that is not writable."""
        if self.unwritable:
            raise StudyError(f"{self.path}: not writable: {self.unwritable}; write another folder after -o")

    def take(self, inputs: Inputs) -> None:
        """Remember the inputs of new rows; raise StudyError for those that differ from earlier rows'."""
        self.check(inputs)
        if inputs.keys() - self.inputs.keys():
            self.inputs |= inputs
            self._write_manifest()

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows to a file of their own; columns that only these have are in this file alone."""
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
        """Return all rows so far, in order of their points."""
        tables = [self._schema(self.columns).empty_table(), *map(_table, self.parts)]
        rows: pd.DataFrame = pa.concat_tables(tables, promote_options="default").to_pandas()
        last = ["error", CLOCK]
        return rows.sort_values("point", ignore_index=True)[[*rows.columns.drop(last), *last]]

    def _found(self, rows: Sequence[Row], known: dict[str, str]) -> dict[str, str]:
        """Return the answers' columns: the known ones, then others in the rows' order."""
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
        content = {"schema": "ringside.study/1", "version": version("ringside-sim"),
                   "study": _plain(self.study), "columns": self.columns,
                   "inputs": dict(sorted(self.inputs.items()))}  # fmt: skip
        write_file(self.path / MANIFEST, json.dumps(content, indent=2) + "\n")


@contextmanager
def opened(path: Path, study: Study) -> Iterator[Folder]:
    """Yield the folder of a study, new or continued; raise StudyError for another study's, or one in use."""
    if path.exists() and not path.is_dir():
        raise StudyError(f"{path}: not a folder; write a new one after -o")
    folder = Folder(path, study)
    with _locked(folder):
        if (path / MANIFEST).exists():
            folder.columns, folder.inputs = _same_study(path, study)
        else:
            folder._write_manifest()
        yield folder


@contextmanager
def _locked(folder: Folder) -> Iterator[None]:
    """Yield the folder, created if missing, for this process alone; read-only on a read-only disk."""
    path, lock = folder.path, None
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not (path / MANIFEST).exists() and any(not _is_passing(file) for file in path.iterdir()):
            raise StudyError(f"{path}: it contains something other than a study; write a new folder after -o")
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
            raise StudyError(f"{path}: another process runs this study; wait for it, or stop it") from None
        for file in path.iterdir():
            if _is_passing(file) and file.name != _LOCK:
                file.unlink()
        yield


def _shown(name: str) -> str:
    return f"{name.removeprefix(OURS)} of Ringside" if name.startswith(OURS) else name


def _table(part: Path) -> pa.Table:
    """Return the rows of a part file; raise StudyError for a damaged one, left by a disk, not by a kill."""
    try:
        table = pq.read_table(part)
    except (OSError, pa.ArrowException):
        table = None
    if table is None or not {"point", "error", CLOCK} <= {*table.column_names}:
        raise StudyError(f"{part}: damaged, or not a part of a study; delete it to run its points again")
    return table


def _is_passing(file: Path) -> bool:
    """Return whether this may be left over from a killed process, and does not count."""
    return file.name == _LOCK or file.name.startswith(".ringside.") or file.suffix == ".unfinished"


def _same_study(path: Path, study: Study) -> tuple[dict[str, str], Inputs]:
    """Return the columns and the inputs of the study in the folder, if it is this one."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        before, made_by, columns = dict(manifest["study"]), manifest["version"], dict(manifest["columns"])
        inputs = dict(manifest["inputs"]) if "inputs" in manifest else None
        if not {*columns.values()} <= {*_TYPES}:
            raise ValueError("columns of an unknown type")
    except (OSError, ValueError, KeyError, TypeError):
        raise StudyError(f"{path / MANIFEST}: cannot be read; write a new folder after -o") from None
    now = _plain(study)
    changed = [key for key in now if now[key] != before.get(key)]
    if changed:
        raise StudyError(
            f"{path}: it contains another study, whose {', '.join(changed)} differs; write a new folder "
            "after -o"
        )
    if made_by != version("ringside-sim") or inputs is None:
        raise StudyError(
            f"{path}: ringside {made_by} began it, whose answers may differ; write a new folder after -o"
        )
    return columns, inputs


def _plain(study: Study) -> dict[str, Any]:
    """Return the settings that determine a study's rows; the column of its picture may change."""
    plain: dict[str, Any] = study.model_dump(mode="json", by_alias=True, exclude={"answer"})
    return plain


def _fitted(row: Row, columns: dict[str, str]) -> Row:
    """Return the row in the given columns; a value of another type becomes an error."""
    odd = [name for name, kind in columns.items() if name in row and type(row[name]).__name__ != kind]
    if not odd:
        return row
    error = "; ".join(f"{name} is {row[name]!r}, of another type than in another answer" for name in odd)
    return {**row, **dict.fromkeys(odd), "error": row["error"] or error}
