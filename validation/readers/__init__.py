"""Measurements from any file that people have of them, recognised by what is in it.

Readable are Ringside's own JSON lines, what nccl-tests prints, what it writes with ``-J``, and the
JSON of published measurements. A row without a usable time (none given, not a number, or of a
collective over 0 bytes, which NCCL does not carry out) is skipped and counted; whatever cannot be
true, or is cut off, is refused with the place where it stands.
"""

import json
import re
from pathlib import Path
from typing import Any

from sim.record import RecordError, from_line
from topologies.disk import regular
from validation.readers.nccl_tests.json import read_json
from validation.readers.nccl_tests.text import read_text
from validation.readers.published import read_published
from validation.readers.reading import EXPECTED, Reading, sound

_RECORD = re.compile(r"(?<!\\)\"record\"\s*:")

__all__ = ["Reading", "json_of", "read", "text_of"]


def read(path: Path) -> Reading:
    """All measurements in a file; raise `RecordError` if it holds none."""
    try:
        reading = _read(text_of(path), path)
    except RecursionError:
        raise RecordError(f"{path}: JSON nested beyond all measure; {EXPECTED}") from None
    if not reading.records:
        raise RecordError(
            f"{path}: none of its {reading.skipped} rows holds a usable time; expected one or more"
        )
    return reading


def text_of(path: Path) -> str:
    """What a file holds; raise `RecordError` if that is no text."""
    try:
        content = regular(path).read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file; {EXPECTED}") from None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read: {error}; {EXPECTED}") from None
    if not content.strip():
        raise RecordError(f"{path}: empty; {EXPECTED}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RecordError(f"{path}, line {line}: binary, no UTF-8 text; {EXPECTED}") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise RecordError(f"{path}, line {line}: binary, holds NUL bytes; {EXPECTED}")
    return text


def _read(text: str, path: Path) -> Reading:
    if not text.lstrip().startswith("{"):
        return read_text(text, path)
    if _RECORD.search(text.lstrip().partition("\n")[0]):
        numbered = enumerate(text.split("\n"), start=1)
        places = ((f"{path}, line {number}", line) for number, line in numbered if line.strip())
        return Reading(tuple(sound(from_line(line, place), place) for place, line in places))
    content = json_of(text, path)
    if "rows" in content:
        return read_published(content, path)
    if "results" in content:
        return read_json(content, path)
    raise RecordError(f"{path}: a JSON object with neither 'results' nor 'rows'; {EXPECTED}")


def json_of(text: str, path: Path) -> dict[str, Any]:
    """One JSON object; raise `RecordError` with the place where it breaks off."""
    try:
        content: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise RecordError(f"{where}: broken or cut off JSON: {error.msg}; {EXPECTED}") from None
    except ValueError as error:
        raise RecordError(f"{path}: JSON with a number beyond all measure: {error}; {EXPECTED}") from None
    return content
