"""The traces of the command line, files, folders, gzip, tar archives, streamed event by event.

A few kilobytes of gzip may unpack to more than a machine's memory: unpacking stops at `MAX_BYTES`. A file of
gigabytes has millions of events, and few are kept. The standard library's decoder reads one value at a time,
so the place of an error is known.
"""

import gzip
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from ringside.topologies.disk import regular
from ringside.validation.readers.kineto.trace import TraceError

EXPECTED = "expected a trace of the PyTorch profiler: .json, .json.gz, .tar or .tar.gz, or a folder of them"
_TARS = (".tar", ".tar.gz", ".tgz")
_NAMES = (".json", ".json.gz", *_TARS)
_GZIP = b"\x1f\x8b"

_BLOCK = 2**20

MAX_BYTES = 2**31
"""The maximum unpacked bytes of one trace."""

MAX_ARCHIVE = 2**36
"""The maximum unpacked bytes of an archive, whose traces are read one by one."""


def texts(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each trace's path and text, one at a time; an archive's paths continue inside it."""
    for path in paths:
        for file in _files(path):
            yield from _texts_of(file)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(one for one in path.rglob("*") if one.is_file() and one.name.endswith(_NAMES))
    if not files:
        raise TraceError(f"{path}: a folder without a trace; {EXPECTED}")
    return files


def _texts_of(path: Path) -> Iterator[tuple[Path, str]]:
    try:
        with regular(path).open("rb") as packed:
            if path.name.endswith(_TARS):
                yield from _members(path, packed)
            else:
                yield path, _text(path, _unpacked(path, packed))
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; {EXPECTED}") from None
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise TraceError(f"{path}: cannot be read, or is cut off: {error}; {EXPECTED}") from None


def _members(path: Path, packed: IO[bytes]) -> Iterator[tuple[Path, str]]:
    bounded: Any = _Bounded(path, packed)
    with tarfile.open(fileobj=bounded, mode="r:") as archive:
        names = 0
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            own = Path(member.name).name
            if file is None or own.startswith("._") or not own.endswith((".json", ".json.gz")):
                continue
            names += 1
            inside = path / member.name
            if member.size > MAX_BYTES:
                raise _too_large(inside, MAX_BYTES)
            yield inside, _text(inside, _unpacked(inside, BytesIO(file.read())))
    if not names:
        raise TraceError(f"{path}: an archive without a trace; {EXPECTED}")


def _opened(packed: IO[bytes]) -> Any:
    """Return a file's bytes, unpacked if necessary, as a file."""
    is_packed = packed.read(len(_GZIP)) == _GZIP
    packed.seek(0)
    return gzip.GzipFile(fileobj=packed) if is_packed else packed


def _unpacked(path: Path, packed: IO[bytes]) -> bytes:
    """Return all bytes of a trace, counted before any of them is kept."""
    content = _opened(packed)
    count = 0
    while block := content.read(_BLOCK):
        count += len(block)
        if count > MAX_BYTES:
            raise _too_large(path, MAX_BYTES)
    content.seek(0)
    unpacked: bytes = content.read()
    return unpacked


class _Bounded:
    """An archive's unpacked bytes, as a file with a limit."""

    def __init__(self, path: Path, packed: IO[bytes]) -> None:
        self._path = path
        self._file = _opened(packed)
        self.tell = self._file.tell

    def seek(self, position: int) -> int:
        """Seek to a position; packed content is unpacked up to there."""
        if position > MAX_ARCHIVE:
            raise _too_large(self._path, MAX_ARCHIVE)
        where: int = self._file.seek(position)
        return where

    def read(self, size: int) -> bytes:
        """Return the next bytes; an archive's headers declare their own number."""
        if size > MAX_BYTES:
            raise _too_large(self._path, MAX_BYTES)
        content: bytes = self._file.read(size)
        return content


def _too_large(path: Path, most: int) -> TraceError:
    return TraceError(f"{path}: more than {most:,} bytes unpacked, the limit; profile fewer steps")


def _text(path: Path, content: bytes) -> str:
    if not content.strip():
        raise TraceError(f"{path}: empty; {EXPECTED}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TraceError(f"{path}, line {line}: binary, not UTF-8 text; {EXPECTED}") from None


_DECODER = json.JSONDecoder(strict=False)
_BLANK = re.compile(r"[ \t\n\r]*")


class TracePlace:
    """A place in a file, computed only on demand."""

    __slots__ = ("at", "number", "path", "text")

    def __init__(self, path: Path, text: str, at: int = 0, number: int = 0) -> None:
        self.path, self.text, self.at, self.number = path, text, at, number

    def kept(self) -> "TracePlace":
        """Return a copy that does not advance with this one."""
        return TracePlace(self.path, self.text, self.at, self.number)

    def __str__(self) -> str:
        line = self.text.count("\n", 0, self.at) + 1
        event = f", event {self.number}" if self.number else ""
        return f"{self.path}, line {line}, character {self.at + 1}{event}"


def read_json(path: Path, text: str, take: Callable[[Any, TracePlace], None]) -> dict[str, Any]:
    """Call ``take`` with each of ``traceEvents``, in order; return all other members.

    A bare array of events, which the Chrome trace format allows, has no others. Raise `TraceError` with the
    place of invalid JSON.
    """
    place = TracePlace(path, text)
    try:
        head = _read(place, take)
    except json.JSONDecodeError as error:
        place.at = error.pos
        raise TraceError(f"{place}: broken or cut off JSON: {error.msg}; record or copy it again") from None
    except RecursionError:
        raise TraceError(f"{place}: JSON nested too deep; not a trace of the PyTorch profiler") from None
    except ValueError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{place}: a number out of range: {error}") from None
    return head


def _read(place: TracePlace, take: Callable[[Any, TracePlace], None]) -> dict[str, Any]:
    text = place.text
    at = _skip(text, 0)
    head: dict[str, Any] = {}
    if text[at : at + 1] == "[":
        at = _events(place, at, take)
    elif text[at : at + 1] == "{":
        at = _object(place, at, head, take)
    else:
        raise TraceError(f"{place.path}: not a JSON object; expected one with 'traceEvents'")
    if at < len(text):
        raise json.JSONDecodeError("something after the end", text, at)
    return head


def _object(place: TracePlace, at: int, head: dict[str, Any], take: Callable[[Any, TracePlace], None]) -> int:
    text = place.text
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        key, at = _DECODER.raw_decode(text, at)
        if not isinstance(key, str):
            raise json.JSONDecodeError("a key that is not a string", text, at)
        at = _skip(text, _expect(text, at, ":"))
        place.at = at
        if key == "traceEvents":
            if text[at : at + 1] != "[":
                raise TraceError(f"{place}: 'traceEvents' is not an array")
            head[key] = None
            at = _events(place, at, take)
        else:
            head[key], at = _DECODER.raw_decode(text, at)
            at = _skip(text, at)
        at = _next(text, at, "}")
    return _skip(text, at + 1)


def _events(place: TracePlace, at: int, take: Callable[[Any, TracePlace], None]) -> int:
    text, decode, skip = place.text, _DECODER.raw_decode, _BLANK.match
    at = _skip(text, at + 1)
    number = 0
    while text[at : at + 1] != "]":
        number += 1
        place.at, place.number = at, number
        event, at = decode(text, at)
        take(event, place)
        # inlined _next: the loop runs once for each of a million events
        at = skip(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] == ",":
            at = skip(text, at + 1).end()  # type: ignore[union-attr]
            if text[at : at + 1] != "]":
                continue
            raise json.JSONDecodeError("a comma before the end", text, at)
        if text[at : at + 1] != "]":
            raise json.JSONDecodeError("expected , or ]", text, at)
    place.number = 0
    return _skip(text, at + 1)


def _next(text: str, at: int, end: str) -> int:
    """Return the position of the next member, or of the object's end."""
    at = _skip(text, at)
    if text[at : at + 1] == end:
        return at
    at = _skip(text, _expect(text, at, ","))
    if text[at : at + 1] == end:
        raise json.JSONDecodeError("a comma before the end", text, at)
    return at


def _expect(text: str, at: int, sign: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise json.JSONDecodeError(f"expected {sign}", text, at)
    return at + 1


def _skip(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]
