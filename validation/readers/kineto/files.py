"""The traces that a command line names: files, folders, gzip, tar archives, each as one text."""

import gzip
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from topologies.disk import regular
from validation.readers.kineto.trace import TraceError

EXPECTED = "expected a trace of the PyTorch profiler: .json, .json.gz, .tar or .tar.gz, or a folder of them"
_TARS = (".tar", ".tar.gz", ".tgz")
_NAMES = (".json", ".json.gz", *_TARS)
_GZIP = b"\x1f\x8b"


def texts(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Each trace's path and text, one at a time; in an archive the path goes on inside it."""
    for path in paths:
        for file in _files(path):
            yield from _texts_of(file)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.rglob("*") if one.is_file() and one.name.endswith(_NAMES))
    if not found:
        raise TraceError(f"{path}: a folder without a trace; {EXPECTED}")
    return found


def _texts_of(path: Path) -> Iterator[tuple[Path, str]]:
    try:
        if path.name.endswith(_TARS):
            yield from _members(path)
            return
        content = regular(path).read_bytes()
        yield path, _text(path, gzip.decompress(content) if content.startswith(_GZIP) else content)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; {EXPECTED}") from None
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise TraceError(f"{path}: cannot be read, or is cut off: {error}; {EXPECTED}") from None


def _members(path: Path) -> Iterator[tuple[Path, str]]:
    with tarfile.open(regular(path)) as archive:
        names = 0
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            own = Path(member.name).name
            if file is None or own.startswith("._") or not own.endswith((".json", ".json.gz")):
                continue
            names += 1
            content = file.read()
            inside = path / member.name
            yield inside, _text(inside, gzip.decompress(content) if content.startswith(_GZIP) else content)
    if not names:
        raise TraceError(f"{path}: an archive without a trace; {EXPECTED}")


def _text(path: Path, content: bytes) -> str:
    if not content.strip():
        raise TraceError(f"{path}: empty; {EXPECTED}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TraceError(f"{path}, line {line}: binary, no UTF-8 text; {EXPECTED}") from None
