"""The records of a file, and the bounds of plausible measurements."""

import math
import reprlib
from dataclasses import dataclass

from pydantic import ValidationError

from ringside.sim.collective import KINDS, kind_of
from ringside.sim.record import Record, RecordError
from ringside.topologies.units import MAX_SIZE

MAX_RANKS = 2**24
"""More ranks than any machine has; a larger number is a typing mistake."""

NCCL_TESTS_STATISTIC = "mean over iterations (nccl-tests)"

EXPECTED = (
    "expected text or JSON (-J) output of nccl-tests, JSON of rccl-tests or NCCL Inspector, "
    "Ringside's JSON lines, or a JSON file of published rows"
)

_DTYPES = {"float": "float32", "double": "float64", "half": "float16", "char": "int8", "int": "int32"}
_SHOWN = 3


class CutOffError(RecordError):
    """A log that ends before its measurements, such as that of a crashed run."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The records of a file, the number of rows without a usable time, and notes on other omissions."""

    records: tuple[Record, ...]
    skipped: int = 0
    notes: tuple[str, ...] = ()


def sound(record: Record, place: str) -> Record:
    """Return the record; raise `RecordError` if its numbers are implausible."""
    spread = (record.min_s, record.max_s, record.p95_s)
    problems = [
        (
            record.collective in KINDS,
            f"{record.collective!r} is not a collective; expected one of {', '.join(KINDS)}",
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
    """Convert microseconds to seconds; ``None`` for none, or an invalid number."""
    return microseconds / 1e6 if microseconds is not None and math.isfinite(microseconds) else None


def kind_at(place: str, text: str) -> str:
    """Parse a collective's name; raise `RecordError` with the place for an unknown one."""
    try:
        return kind_of(text)
    except ValueError as error:
        raise RecordError(f"{place}: {error}") from None


def dtype_of(text: str) -> str:
    """Return Ringside's name of an nccl-tests data type: ``float`` is float32; empty if invalid."""
    word = text.strip().lower()
    return _DTYPES.get(word, word if word.isidentifier() else "")


def complaint(error: ValidationError, name: str) -> RecordError:
    """Describe the validation errors of a JSON file, with the first few places."""
    problems = error.errors(include_url=False)
    texts = [
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}, not {reprlib.repr(problem['input'])}"
        for problem in problems[:_SHOWN]
    ]
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return RecordError(f"{name}: {'; '.join(texts)}{more}")


def _short(number: int) -> str:
    return str(number) if abs(number) < 10**20 else "more than 10^20" if number > 0 else "less than -10^20"
