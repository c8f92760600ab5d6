"""How files come onto the disk, whole or not at all with nothing else harmed, and which are read.

A regular file changes at once, by a rename in its own folder; it keeps its permissions, and a symbolic
link to it stays a link. What is no regular file, such as ``/dev/null``, ``/dev/stdout`` or a named
pipe, is never replaced: it is written into. A file of lines to which several processes may add grows by
`add_lines`; one that a process writes again and again is `held` by it.
"""

import errno
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_written: dict[Path, None] = {}


class OutputError(ValueError):
    """A file that cannot be written; the message says why."""


def written() -> list[Path]:
    """What this process has written, in order of first times."""
    return list(_written)


def note_written(path: Path) -> None:
    """Remember a file that came onto the disk by another way than these."""
    _written[path] = None


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | str] = ()) -> None:
    """Refuse outputs that could not be written or would overwrite each other or what is read.

    To be called before any work is done for them. ``None`` is an output that nobody asked for, an
    input that is no file is something else by name.
    """
    taken = {os.path.realpath(path): "it is read" for path in inputs if Path(path).is_file()}
    for path in filter(None, outputs):
        _check_writable(path)
        real = os.path.realpath(path)
        if real in taken and not is_stream(path):
            raise _refusal(path, taken[real])
        taken[real] = "something else is written there"


def is_stream(path: Path) -> bool:
    """Whether what is written there is gone: a device, a pipe, or this process's own output.

    So what grows must be written piece by piece, and nothing can be read from there.
    """
    return path.exists() and (not path.is_file() or _own_descriptor(path) is not None)


def write_file(path: Path, content: str | bytes) -> None:
    """Put ``content`` in place of whatever the file held; raise `OutputError` where that cannot be."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    _check_writable(path)
    try:
        if is_stream(path):
            _pour(path, data)
        else:
            _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        unread = error.errno == errno.ENXIO
        raise _refusal(path, "nobody reads from it" if unread else error.strerror) from None
    note_written(path)


def add_lines(path: Path, lines: str) -> None:
    """Append whole lines, all of them or none; raise `OutputError` where that cannot be.

    Several processes may do so at the same time. Where the file ends in the middle of a line, the new ones
    begin on a line of their own.
    """
    _check_writable(path)
    try:
        with path.open("ab+", buffering=0) as file:
            with suppress(OSError):  # a disk without locks still appends each write as a whole
                fcntl.flock(file, fcntl.LOCK_EX)
            end = file.seek(0, os.SEEK_END)
            is_torn = end and os.pread(file.fileno(), 1, end - 1) != b"\n"
            left = memoryview((b"\n" if is_torn else b"") + lines.encode("utf-8"))
            try:
                while left:
                    left = left[file.write(left) :]
            finally:
                if left:  # the disk is full
                    file.truncate(end)
    except OSError as error:
        raise _refusal(path, error.strerror) from None
    note_written(path)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """A file that this process alone writes while the block lasts; refuse one that another process holds."""
    if is_stream(path):
        yield
        return
    real = Path(os.path.realpath(path))
    beside = real.with_name(f".{real.name}.lock")  # the file itself is replaced, and its lock with it
    try:
        lock = _locked(beside)
    except BlockingIOError:
        raise _refusal(path, "another process writes it") from None
    except OSError as error:
        raise _refusal(path, error.strerror) from None
    with open(lock, "wb"):
        try:
            yield
        finally:
            beside.unlink(missing_ok=True)


def _locked(path: Path) -> int:
    """The descriptor of a lock file, which is locked and is the one that the path leads to."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise
        except OSError:  # a disk without locks
            return lock
        with suppress(FileNotFoundError):  # whoever had it has just taken it away
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)


def check_folder(path: Path) -> None:
    """Refuse a folder that could not be made, or that has something in it."""
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise _refusal(path, "it is there already and not an empty folder")
    if not _takes_files(target.parent):
        raise _refusal(path, f"{target.parent} is no folder that can be written to")


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder of files, which is there with all of them or not at all."""
    check_folder(path)
    target = Path(os.path.realpath(path))
    beside = _beside(target)
    try:
        beside.mkdir()
        try:
            for name, content in files.items():
                (beside / name).write_bytes(content)
            beside.replace(target)
        except BaseException:  # an interrupt too must leave nothing behind
            shutil.rmtree(beside, ignore_errors=True)
            raise
    except OSError as error:
        raise _refusal(path, error.strerror) from None
    note_written(path)


def regular(path: Path) -> Path:
    """The path itself; raise OSError where it leads to a device or a pipe, which may have no end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return path


def _refusal(path: Path, why: str | None) -> OutputError:
    return OutputError(f"{path}: cannot be written: {why}; write another path")


def _check_writable(path: Path) -> None:
    folder = Path(os.path.realpath(path)).parent
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG  # as it will be
    except OSError as error:
        raise _refusal(path, error.strerror) from None
    if stat.S_ISDIR(mode):
        raise _refusal(path, "it is a folder")
    if stat.S_ISBLK(mode):
        raise _refusal(path, "it is a disk")
    if path.exists() and not os.access(path, os.W_OK):
        raise _refusal(path, "it is write-protected")
    if not is_stream(path) and not _takes_files(folder):
        raise _refusal(path, f"{folder} is no folder that can be written to")


def _beside(target: Path) -> Path:
    """A new name in the target's folder; `tempfile` would let nobody but the owner read what it makes."""
    return target.with_name(f".ringside.{os.urandom(8).hex()}")


def _takes_files(folder: Path) -> bool:
    """Whether files can be made in a folder; tried, for the rights of ``/proc`` promise root too much."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _replace(target: Path, data: bytes) -> None:
    beside = _beside(target)
    with beside.open("xb") as file:
        try:
            file.write(data)
            file.flush()
            if target.exists():
                shutil.copymode(target, beside)
            beside.replace(target)
        except BaseException:  # an interrupt too must leave nothing behind
            with suppress(OSError):
                beside.unlink()
            raise


def _pour(path: Path, data: bytes) -> None:
    own = _own_descriptor(path)
    if own is not None:
        # opened anew it would be written from its beginning, over what was printed there
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        descriptor = os.dup(own)
    else:
        # without this flag a pipe that nobody reads would be waited for without end
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        os.set_blocking(descriptor, True)
    with open(descriptor, "wb") as file:
        file.write(data)


def _own_descriptor(path: Path) -> int | None:
    """The number of our own standard output or error, if that is where the path leads."""
    for number, stream in enumerate((sys.stdout, sys.stderr), start=1):
        with suppress(OSError):
            if stream and os.path.samestat(path.stat(), os.fstat(number)):
                return number
    return None
