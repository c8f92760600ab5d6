"""Write files to disk atomically, and check paths before they are read or written.

A regular file is replaced by a rename in its own folder. It keeps its permissions, and a symbolic link to
it stays a link. A device or a pipe, such as ``/dev/null``, ``/dev/stdout`` or a named pipe, is never
replaced: the data are written into it. `add_lines` appends to a file that several processes share; `held`
locks a file that one process writes repeatedly.
"""

import errno
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
    """A file that cannot be written; the message gives the reason."""


def written() -> list[Path]:
    """Return the paths that this process has written, in the order of their first writes."""
    return list(_written)


def note_written(path: Path) -> None:
    """Record a file that was written by other means than this module."""
    _written[path] = None


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | str] = ()) -> None:
    """Refuse outputs that cannot be written, or that would overwrite each other or an input.

    Call it before computing them. ``None`` stands for an output that is not requested. Inputs that are
    not files, such as the names of machines, are ignored.
    """
    taken = {os.path.realpath(path): "it is an input" for path in inputs if Path(path).is_file()}
    for path in filter(None, outputs):
        _check_writable(path)
        real = os.path.realpath(path)
        if real in taken and not is_stream(path):
            raise _refusal(path, taken[real])
        taken[real] = "another output has this path"


def is_stream(path: Path) -> bool:
    """Return whether the path is a device, a pipe or this process's own output.

    Such a path cannot be read back, and growing output must be written to it piece by piece.
    """
    return path.exists() and (not path.is_file() or _own_descriptor(path) is not None)


def write_file(path: Path, content: str | bytes) -> None:
    """Replace the file's content; raise `OutputError` if it cannot be written."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    _check_writable(path)
    try:
        if is_stream(path):
            _pour(path, data)
        else:
            _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        unread = error.errno == errno.ENXIO
        raise _refusal(path, "it has no reader" if unread else error.strerror) from None
    note_written(path)


def add_lines(path: Path, lines: str) -> None:
    """Append whole lines, all of them or none; raise `OutputError` if they cannot be written.

    Several processes may append at the same time. If the file ends in the middle of a line, the new lines
    begin on a line of their own.
    """
    import fcntl  # which Windows lacks: predictions do not need it

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
    """Lock a file for this process while the block lasts; refuse one that another process holds."""
    if is_stream(path):
        yield
        return
    real = Path(os.path.realpath(path))
    beside = real.with_name(f".{real.name}.lock")  # the file itself is replaced, and its lock with it
    try:
        lock = _locked(beside)
    except BlockingIOError:
        raise _refusal(path, "another process is writing it") from None
    except OSError as error:
        raise _refusal(path, error.strerror) from None
    with open(lock, "wb"):
        try:
            yield
        finally:
            beside.unlink(missing_ok=True)


def _locked(path: Path) -> int:
    """Return the descriptor of a lock file, locked, which the path still names."""
    import fcntl  # which Windows lacks

    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise
        except OSError:  # a disk without locks
            return lock
        with suppress(FileNotFoundError):  # the previous holder has just removed it
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be made or is not empty."""
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise _refusal(path, "it exists and is not an empty folder")
    if not _takes_files(target.parent):
        raise _refusal(path, f"{target.parent} is not a writable folder")


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder of files atomically: it appears with all of them or not at all."""
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
    """Return the path; raise OSError for a device or a pipe, which may never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def _refusal(path: Path, why: str | None) -> OutputError:
    return OutputError(f"{path}: cannot be written: {why}; write another path")


def _check_writable(path: Path) -> None:
    folder = Path(os.path.realpath(path)).parent
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG  # it will be a regular file
    except OSError as error:
        raise _refusal(path, error.strerror) from None
    if stat.S_ISDIR(mode):
        raise _refusal(path, "it is a folder")
    if stat.S_ISBLK(mode):
        raise _refusal(path, "it is a disk")
    if path.exists() and not os.access(path, os.W_OK):
        raise _refusal(path, "it is write-protected")
    if not is_stream(path) and not _takes_files(folder):
        raise _refusal(path, f"{folder} is not a writable folder")


def _beside(target: Path) -> Path:
    """Return a new name in the target's folder; files of `tempfile` are readable by their owner only."""
    return target.with_name(f".ringside.{os.urandom(8).hex()}")


def _takes_files(folder: Path) -> bool:
    """Try to make a file in a folder; return whether it worked, as the modes of ``/proc`` mislead root."""
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
        # opening it again would overwrite the output from its beginning
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        descriptor = os.dup(own)
    else:
        # without this flag, opening a pipe that has no reader blocks forever
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        os.set_blocking(descriptor, True)
    with open(descriptor, "wb") as file:
        file.write(data)


def _own_descriptor(path: Path) -> int | None:
    """Return the number of our own standard output or error if the path leads there."""
    for number, stream in enumerate((sys.stdout, sys.stderr), start=1):
        with suppress(OSError):
            if stream and os.path.samestat(path.stat(), os.fstat(number)):
                return number
    return None
