"""Measurements from any common file format, recognised by content.

Supported are Ringside's own JSON lines, nccl-tests' text output and its JSON (``-J``), the JSON of rccl-tests
and of NCCL Inspector, that of published measurements, and PICO's CSV. A row without a usable time (none
given, not a number, or of a collective over 0 bytes, which NCCL does not carry out) is skipped and counted;
invalid or truncated content is refused with its place.
"""

import json
import re
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from ringside.sim.record import Record, RecordError, from_line
from ringside.topologies.disk import regular
from ringside.validation.readers.inspector import is_operation, read_inspector
from ringside.validation.readers.nccl_tests_json import read_json
from ringside.validation.readers.nccl_tests_text import read_text
from ringside.validation.readers.pico import is_pico, read_pico
from ringside.validation.readers.published import read_published
from ringside.validation.readers.rccl_tests import is_row, read_rccl_tests
from ringside.validation.readers.reading import EXPECTED, CutOffError, Reading, sound

_ARRAY = re.compile(r"\[\s*\{")
_ONE_A_LINE = re.compile(r"\{\s*\"(?:numCycle|header|recordType|type)\"\s*:|\{[^\n]*\}\s*\n\s*\{")
_RECORD = re.compile(r"(?<!\\)\"record\"\s*:")

__all__ = ["Reading", "json_of", "read", "read_all", "records_of", "text_of"]


def read(path: Path) -> Reading:
    """Read all measurements in a file; raise `RecordError` if it holds none."""
    try:
        reading = _read(text_of(path), path)
    except RecursionError:
        raise RecordError(f"{path}: JSON nested too deep; {EXPECTED}") from None
    if not reading.records:
        raise RecordError(
            f"{path}: none of its {reading.skipped} rows holds a usable time; expected one or more"
        )
    return reading


def read_all(paths: Iterable[Path]) -> Reading:
    """Read all measurements in several files."""
    readings = [read(path) for path in paths]
    records = tuple(record for reading in readings for record in reading.records)
    notes = tuple(note for reading in readings for note in reading.notes)
    return Reading(records, sum(reading.skipped for reading in readings), notes)


def records_of(*files: str | PathLike[str]) -> list[Record]:
    """Return the measurements in files: records, nccl-tests' text or JSON, published rows.

    Rows without a usable time are left out. Raise `RecordError` for a file without any.
    """
    return list(read_all(map(Path, files)).records)


def text_of(path: Path) -> str:
    """Return a file's content; raise `RecordError` if it is not text."""
    try:
        content = regular(path).read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file; {EXPECTED}") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read: {error}; {EXPECTED}") from None
    if not content.strip():
        raise CutOffError(f"{path}: empty; {EXPECTED}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RecordError(f"{path}, line {line}: binary, not UTF-8 text; {EXPECTED}") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise RecordError(f"{path}, line {line}: binary, holds NUL bytes; {EXPECTED}")
    return text


def _read(text: str, path: Path) -> Reading:
    if text.lstrip().startswith("[") and _ARRAY.match(text.lstrip()):
        return _lines(objects_of(text, path), path)
    if is_pico(text):
        return read_pico(text, path)
    if not text.lstrip().startswith("{"):
        return read_text(text, path)
    if _RECORD.search(text.lstrip().partition("\n")[0]):
        numbered = enumerate(text.split("\n"), start=1)
        places = ((f"{path}, line {number}", line) for number, line in numbered if line.strip())
        return Reading(tuple(sound(from_line(line, place), place) for place, line in places))
    if _ONE_A_LINE.match(text.lstrip()):
        return _lines(objects_of(text, path), path)
    content = json_of(text, path)
    if "rows" in content:
        return read_published(content, path)
    if "results" in content:
        return read_json(content, path)
    raise RecordError(f"{path}: a JSON object with neither 'results' nor 'rows'; {EXPECTED}")


def _lines(objects: list[tuple[str, Any]], path: Path) -> Reading:
    """Read another tool's objects, one per row or operation."""
    if objects and all(is_row(content) for _, content in objects):
        return read_rccl_tests(objects, path)
    if objects and all(is_operation(content) for _, content in objects):
        return read_inspector(objects, path)
    raise RecordError(
        f"{path}: JSON objects that are neither rccl-tests' rows nor all NCCL Inspector's collectives, "
        f"such as another profiler's events; {EXPECTED}"
    )


def objects_of(text: str, path: Path) -> list[tuple[str, Any]]:
    """Return the JSON objects of an array, or of a sequence, each with its place."""
    text = text.strip()
    if text.startswith("["):
        items = json_of(f'{{"items":{text}}}', path)["items"]
        return [(f"{path}, item {number}", item) for number, item in enumerate(items, start=1)]
    decoder, objects = json.JSONDecoder(), []
    at, line = 0, 1
    while at < len(text):
        start, place = at, f"{path}, line {line}"
        try:
            content, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise RecordError(f"{place}: broken or cut off JSON: {error}; {EXPECTED}") from None
        objects.append((place, content))
        while at < len(text) and text[at].isspace():
            at += 1
        line += text.count("\n", start, at)
    return objects


def json_of(text: str, path: Path) -> dict[str, Any]:
    """Parse one JSON object; raise `RecordError` with the place of an error."""
    try:
        content: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise RecordError(f"{where}: broken or cut off JSON: {error.msg}; {EXPECTED}") from None
    except ValueError as error:
        raise RecordError(f"{path}: JSON with a number out of range: {error}; {EXPECTED}") from None
    return content
