"""The table of an nccl-tests log. Its header names the columns, in all releases.

Releases differ in the columns before the times (``redop`` and ``root`` were once printed only where they
applied) and after them (``-I`` adds four per half, bitwise checks one, ``-S`` date and time). Until 2019 they
had other names, and times were in milliseconds.
"""

import math
import re
from dataclasses import dataclass

from ringside.sim.record import RecordError
from ringside.validation.readers.nccl_tests.run import BenchmarkRow, Timing
from ringside.validation.readers.reading import CutOffError, seconds

_ROW = re.compile(r"\s*-?\d+(?:\s+-?\d+(?:\s+[a-z]\w*(?:\s.*)?)?)?\s*")
_REST = re.compile(r"[\s\d.+\-eE/NAainf]+")
_STAMP = re.compile(r"\s(\d{4}-\d\d-\d\d)\s+(\d\d:\d\d:\d\d)\s*$")
_OLD = {"bytes": "size", "N": "count", "op": "redop", "res": "error"}
_GAP = 24  # blanks: wider than any gap between two numbers, narrower than an omitted half row


@dataclass(frozen=True, slots=True)
class Cells:
    """One row's texts by column: ``head`` before the times, then the halves."""

    place: str
    head: dict[str, str]
    out_of_place: dict[str, str]
    in_place: dict[str, str]
    date: str = ""
    time_us: float = 1.0
    """The unit of times, in microseconds."""

    @property
    def nbytes(self) -> int:
        """Return the size column."""
        try:
            return int(self.head["size"])
        except ValueError:
            raise RecordError(f"{self.place}: a size of too many digits; expected bytes") from None

    @property
    def redop(self) -> str:
        """The operator, empty without one."""
        return self.head.get("redop", "").replace("none", "")

    def row(self) -> BenchmarkRow:
        """Convert the row to numbers."""
        return BenchmarkRow(
            place=self.place,
            nbytes=self.nbytes,
            dtype=self.head["type"],
            redop=self.redop,
            out_of_place=self._timing(self.out_of_place),
            in_place=self._timing(self.in_place),
            date=self.date,
        )

    def number(self, half: dict[str, str], column: str) -> float | None:
        """Return a number of one half; ``None`` where nccl-tests has none."""
        text = half.get(column, "N/A")
        try:
            value = math.nan if text == "N/A" else float(text)
        except ValueError:
            raise RecordError(
                f"{self.place}: {text[:40]!r} under {column}; expected a number or N/A"
            ) from None
        return value if math.isfinite(value) else None

    def _timing(self, half: dict[str, str]) -> Timing:
        numbers = (self.number(half, column) for column in ("time", "i_min", "i_max"))
        time_s, min_s, max_s = (None if n is None else seconds(n * self.time_us) for n in numbers)
        return Timing(time_s, min_s or 0.0, max_s or 0.0)


class Table:
    """A table that is being read: started by its header, fed line by line, complete when closed."""

    def __init__(self, place: str, columns: list[str]) -> None:
        if "cputime" in columns:
            raise RecordError(
                f"{place}: the table holds cputime, the CPU's time to launch; "
                "expected time: run nccl-tests without -C"
            )
        self._time_us = 1e3 if columns[0] == "bytes" else 1.0
        columns = [_OLD.get(column, column) for column in columns]
        first = columns.index("time")
        second = columns.index("time", first + 1)
        self.place = place
        self.rows: list[Cells] = []
        self._head = columns[:first]
        self._half = columns[first:second]
        self._stamp = ["date", "time"] if "timestamp" in columns else []
        self._begun: tuple[str, str] | None = None

    def take(self, place: str, text: str, interrupted: bool) -> bool:
        """Take a row, or the rest of an ``interrupted`` one; return whether the line is one."""
        if _ROW.fullmatch(text):
            self.close()
            self._begun = (place, text)
        elif self._begun and text.strip() and _REST.fullmatch(text):
            self._begun = (self._begun[0], f"{self._begun[1]} {text}")
        else:
            return False
        cells = self._cells(*self._begun)
        if cells is not None:
            self.rows.append(cells)
            self._begun = None
        elif not interrupted:
            self.close()
        return True

    def close(self) -> None:
        """Raise RecordError for a row that never became complete."""
        if self._begun is not None:
            place, text = self._begun
            columns = [*self._head, *self._half, *self._half, *self._stamp]
            raise CutOffError(
                f"{place}: a row of {len(text.split())} columns, truncated or mixed with other output; "
                f"expected {len(columns)}: {' '.join(columns)}"
            )

    def _cells(self, place: str, text: str) -> Cells | None:
        stamp = _STAMP.search(text)
        tokens = (text[: stamp.start()] if stamp else text).split()
        date = f"{stamp[1]}T{stamp[2]}" if stamp else ""
        head, rest = tokens[: len(self._head)], tokens[len(self._head) :]
        width = len(self._half)
        if len(rest) == width and self._left_out(text):
            rest = ["N/A"] * width + rest
        if len(rest) != 2 * width or bool(self._stamp) > bool(stamp):
            return None
        return Cells(
            place=place,
            head=dict(zip(self._head, head, strict=True)),
            out_of_place=dict(zip(self._half, rest[:width], strict=True)),
            in_place=dict(zip(self._half, rest[width:], strict=True)),
            date=date,
            time_us=self._time_us,
        )

    def _left_out(self, text: str) -> bool:
        """Return whether the out-of-place half is blank, as where only in place applies."""
        return re.match(rf"\s*(?:\S+\s+){{{len(self._head) - 1}}}\S+\s{{{_GAP},}}\S", text) is not None


def header(text: str) -> list[str] | None:
    """Parse the columns of a header line; ``None`` for any other line."""
    columns = text.lstrip().removeprefix("#").split()
    times = columns.count("time") + columns.count("cputime")
    return (
        columns if [_OLD.get(c, c) for c in columns[:3]] == ["size", "count", "type"] and times == 2 else None
    )
