"""What a file of measurements yields, and the bounds within which a measurement can be true."""

import math
import reprlib
from dataclasses import dataclass

from pydantic import ValidationError

from ringside.sim.collective import KINDS, kind_of
from ringside.sim.record import Record, RecordError
from ringside.topologies.units import MAX_SIZE

MAX_RANKS = 2**24
"""More ranks than any machine has; a larger number is a slip of the pen."""

NCCL_TESTS_STATISTIC = "mean over iterations (nccl-tests)"

EXPECTED = (
    "expected text or JSON (-J) output of nccl-tests, JSON of rccl-tests or NCCL Inspector, "
    "Ringside's JSON lines, or a JSON file of published rows"
)

_DTYPES = {"float": "float32", "double": "float64", "half": "float16", "char": "int8", "int": "int32"}
_SHOWN = 3


class CutOffError(RecordError):
    """A log that ends before its measurements do, as that of a run that crashed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The records of a file, how many of its rows held no usable time, and what it leaves out besides."""

    records: tuple[Record, ...]
    skipped: int = 0
    notes: tuple[str, ...] = ()


def sound(record: Record, place: str) -> Record:
    """The record itself; raise `RecordError` if no measurement can have given its numbers."""
    spread = (record.min_s, record.max_s, record.p95_s)
    problems = [
        (
            record.collective in KINDS,
            f"{record.collective!r} is no collective; expected one of {', '.join(KINDS)}",
        ),
        (1 <= record.ranks <= MAX_RANKS, f"{_short(record.ranks)} ranks; expected 1 to {MAX_RANKS}"),
        (0 <= record.num_nodes <= record.ranks, f"{_short(record.num_nodes)} nodes; expected 0 to the ranks"),
        (
            0 <= record.nbytes <= MAX_SIZE,
            f"{_short(record.nbytes)} bytes; expected 0 to {MAX_SIZE}",
        ),
        (0 < record.time_s < math.inf, f"a time of {record.time_s:g} s; expected one above 0"),
        (all(0 <= s < math.inf for s in spread), f"iterations of {spread} s; expected 0 or more"),
    ]
    for holds, problem in problems:
        if not holds:
            raise RecordError(f"{place}: {problem}")
    return record


def seconds(microseconds: float | None) -> float | None:
    """Microseconds as seconds; ``None`` where a file gives none, or no number."""
    return microseconds / 1e6 if microseconds is not None and math.isfinite(microseconds) else None


def kind_at(place: str, text: str) -> str:
    """The collective that a file names; raise `RecordError` with the place for what is none."""
    try:
        return kind_of(text)
    except ValueError as error:
        raise RecordError(f"{place}: {error}") from None


def dtype_of(text: str) -> str:
    """Our word for a data type of nccl-tests: ``float`` is float32; empty where it is none."""
    word = text.strip().lower()
    return _DTYPES.get(word, word if word.isidentifier() else "")


def complaint(error: ValidationError, name: str) -> RecordError:
    """What is wrong with a JSON file's content, the first few places named."""
    problems = error.errors(include_url=False)
    texts = [
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}, not {reprlib.repr(problem['input'])}"
        for problem in problems[:_SHOWN]
    ]
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return RecordError(f"{name}: {'; '.join(texts)}{more}")


def _short(number: int) -> str:
    return str(number) if abs(number) < 10**20 else "more than 10^20" if number > 0 else "less than -10^20"
