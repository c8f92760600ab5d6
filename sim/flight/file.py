"""Files of PyTorch's Flight Recorder, one for each rank: pickles or JSON.

NCCL's watchdog writes pickles; ``torch._C._distributed_c10d._dump_fr_trace()`` returns the same as bytes for
any backend, and ``_dump_fr_trace_json()`` text without stacks.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ringside.sim.flight.dump import MAX_RANK, Dump
from ringside.sim.flight.plain import UnsafePickleError, plain_values

MAX_FILE_NBYTES = 256 * 2**20
"""Largest file that is read: 2,000 calls are 2 MB."""

_RANK = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle))?$")

_DUMP = TypeAdapter(Dump)


class FlightError(ValueError):
    """A file that is no dump of the Flight Recorder, or a folder without any."""


def is_flight(path: Path | None) -> bool:
    """Return whether a file, or one in a folder, looks like a dump of the Flight Recorder."""
    if path is None:
        return False
    return any(map(_looks_like_dump, _files(path)))


def read_dumps(paths: Sequence[Path]) -> dict[int, Dump]:
    """Return dumps by rank: the number in which each file's name ends. A folder stands for the dumps in it.

    Raise FlightError that says what is wrong with which file.
    """
    files: dict[int, Path] = {}
    for path in paths:
        if not path.exists():
            raise FlightError(f"{path}: no such file; write a folder of dumps, or the dumps")
        for file in _files(path):
            if path.is_dir() and not _looks_like_dump(file):
                continue
            rank = _rank_of(file)
            if rank in files and files[rank] != file:
                raise FlightError(f"{files[rank]} and {file} are both of rank {rank}; leave one out")
            files[rank] = file
    if not files:
        raise FlightError(f"{paths[0]}: no dumps; their names end in the rank, as nccl_trace_rank_0 does")
    return {rank: _read(file) for rank, file in sorted(files.items())}


def _files(path: Path) -> Iterator[Path]:
    """Return the file, or those of the folder whose names end in a number."""
    if path.is_dir():
        yield from (one for one in sorted(path.iterdir()) if one.is_file() and _RANK.search(one.name))
    elif path.is_file():
        yield path


def _rank_of(file: Path) -> int:
    match = _RANK.search(file.name)
    if match is None or len(match[1]) > 7 or int(match[1]) > MAX_RANK:
        raise FlightError(f"{file}: end its name in the rank, up to {MAX_RANK:,}, as nccl_trace_rank_0 does")
    return int(match[1])


def _looks_like_dump(file: Path) -> bool:
    with file.open("rb") as stream:
        head = stream.read(64)
        if head[:1] != b"\x80" and head.lstrip()[:1] != b"{":
            return False
        return b"pg_config" in head + stream.read(MAX_FILE_NBYTES)


def _read(file: Path) -> Dump:
    if file.stat().st_size > MAX_FILE_NBYTES:
        raise FlightError(f"{file}: {file.stat().st_size:,} bytes; a dump has at most {MAX_FILE_NBYTES:,}")
    content = file.read_bytes()
    try:
        if content[:1] == b"\x80":
            return _DUMP.validate_python(plain_values(content))
        return _DUMP.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:80]
        raise FlightError(f"{file}: {where or 'the file'}: {first['msg']}; dump it again") from None
    except UnsafePickleError as error:
        raise FlightError(f"{file}: the pickle {error}, as no dump does; it was not loaded") from None
    except Exception as error:  # a damaged pickle raises almost any exception
        raise FlightError(f"{file}: damaged ({type(error).__name__}); dump it again") from None
