"""File formats: a `Schedule` or a `Program` in MSCCL's XML, in GOAL and in Chakra's traces.

Each format has a file for writing and one for reading; `docs/formats.md` lists what it preserves and loses.
"""

from pathlib import Path

from ringside.topologies.disk import regular

MAX_BYTES = 2**30
"""Maximum bytes of a file that is read."""


class FormatError(ValueError):
    """A file that cannot be read, or data that a format cannot express; the message says where and why."""


def bytes_of(path: Path) -> bytes:
    """Return all of a file; raise `FormatError` where it is missing or too large."""
    try:
        size = regular(path).stat().st_size
        if size > MAX_BYTES:
            raise FormatError(f"{path}: {size:,} bytes; allowed: up to {MAX_BYTES:,}")
        return path.read_bytes()
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file") from None


def text_of(path: Path) -> str:
    """Return all of a text file."""
    try:
        return bytes_of(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}, byte {error.start}: not text in UTF-8") from None
