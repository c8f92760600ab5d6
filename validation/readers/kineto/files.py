"""The traces of the command line: files, folders, gzip, tar archives, each as one text.

A few kilobytes of gzip may unpack to more than a machine's memory: unpacking stops at `MAX_BYTES`.
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterable, Iterator
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
