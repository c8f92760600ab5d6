"""The table of an nccl-tests log, and facts inferred from its numbers where the log omits them.

The header names the columns, in all releases.

Releases differ in the columns before the times (``redop`` and ``root`` were once printed only where they
applied) and after them (``-I`` adds four per half, bitwise checks one, ``-S`` date and time). Until 2019 they
had other names, and times were in milliseconds.

nccl-tests prints the program's name since 2.17. Before, the columns decide: an operator means a reduction, a
root broadcast or reduce; bus bandwidth x time / size is the collective's own factor of the rank count;
all_to_all and sendrecv check no results in place (``N/A``).

Where no line lists the ranks, the same factor gives their number: 2(n-1)/n for all_reduce. Printed numbers
are rounded, so each row leaves an interval; the intervals are intersected.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from ringside.sim.collective import KINDS
from ringside.sim.record import RecordError
from ringside.validation.readers.nccl_tests_run import BenchmarkRow, Timing
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


class BenchmarkTable:
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


_KINDS = {
    (True, True): ("reduce",),
    (True, False): ("all_reduce", "reduce_scatter", "sendrecv"),
    (False, True): ("broadcast",),
    (False, False): ("all_gather", "all_to_all"),
}
"""Kinds by operator and root; sendrecv prints an operator that it does not use."""

_UNCHECKED_IN_PLACE = ("all_to_all", "sendrecv")

_MOST = 4096
"""Beyond this number of ranks no printed bandwidth distinguishes two numbers."""

_ADVICE = "write a line '# nThread 1 nGpus 8' above for one process of 8 GPUs, or list the ranks"


def infer_kind(rows: list[Cells], fits: Callable[[str], bool], place: str, file_name: str) -> str:
    """Return the one collective that fits all evidence; raise `RecordError` for several, or none.

    ``fits`` is whether the bandwidths may be a collective's.
    """
    first = rows[0]
    rooted = not first.head.get("root", "-1").startswith("-")
    kinds = _KINDS[bool(first.redop), rooted]
    possible = [kind for kind in kinds if fits(kind)]
    last = rows[-1]  # the first may be of 0 bytes, which are never checked
    if len(possible) > 1 and _wrong(last.out_of_place) != "N/A":
        unchecked = _wrong(last.in_place) == "N/A"
        possible = [kind for kind in possible if (kind in _UNCHECKED_IN_PLACE) == unchecked]
    if len(possible) > 1:
        possible = [kind for kind in possible if _bare(kind) in _bare(file_name)] or possible
    if len(possible) == 1:
        return possible[0]
    evidence = f"fits {' and '.join(possible)}" if possible else f"fits none of {', '.join(KINDS)}"
    raise RecordError(
        f"{place}: the log does not say which collective this is, and the table {evidence}; "
        "expected a line '# Collective test starting: all_reduce_perf' (or another) above: write one"
    )


def factor_fits(kind: str, rows: list[Cells], ranks: int) -> bool:
    """Return whether the largest printed bus bandwidth, within its rounding, is this collective's."""
    expected = KINDS[kind].busbw_factor(ranks)
    measured = []
    for row in rows:
        time, busbw = (row.number(row.out_of_place, column) for column in ("time", "busbw"))
        if time and busbw and row.nbytes:
            measured.append((busbw, busbw * 1e3 * time * row.time_us / row.nbytes))
    if not measured:
        return True
    busbw, factor = max(measured)
    return abs(factor - expected) <= factor * (0.01 / busbw + 0.005)


def ranks_of(rows: list[Cells], kind: str, per_process: int, place: str) -> int:
    """Return the one number of ranks that fits; raise `RecordError` for several, or none.

    ``per_process``, if more than one, is the number of ranks per process (``-t`` times ``-g``): a divisor of
    the number, and the number itself where the bandwidths do not decide.
    """
    counts = fitting(rows, kind, per_process)
    if len(counts) == 1:
        return counts[0]
    if per_process > 1 and per_process in counts and not tells(kind):
        return per_process
    if not counts:
        evidence = f"its bandwidths fit no number of ranks of {kind}"
    elif tells(kind):
        evidence = f"its bandwidths fit {counts[0]} to {counts[-1]} ranks"
    else:
        evidence = f"bandwidths of {kind} do not depend on their number"
    raise RecordError(f"{place}: no ranks are listed above, and {evidence}; {_ADVICE}")


def fitting(rows: list[Cells], kind: str, per_process: int) -> list[int]:
    """Return all numbers of ranks that the printed bandwidths allow."""
    low, high = 0.0, float("inf")
    for least, most in _intervals(rows):
        low, high = max(low, least), min(high, most)
    step = max(per_process, 1)
    counts = range(step if step > 1 else 2, _MOST + 1, step)
    return [ranks for ranks in counts if low <= KINDS[kind].busbw_factor(ranks) <= high]


def _wrong(half: dict[str, str]) -> str:
    return half.get("#wrong", half.get("error", "N/A"))


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def tells(kind: str) -> bool:
    """Return whether a collective's bus bandwidth depends on the number of ranks."""
    return KINDS[kind].busbw_factor(2) != KINDS[kind].busbw_factor(3)


def _intervals(rows: list[Cells]) -> Iterator[tuple[float, float]]:
    """Yield bounds of each half row's bus bandwidth over its algorithm bandwidth."""
    for row in rows:
        for half in (row.out_of_place, row.in_place):
            times, buses = _printed(half, "time"), _printed(half, "busbw")
            if times and buses and row.nbytes:
                scale = 1e3 * row.time_us / row.nbytes
                yield buses[0] * times[0] * scale, buses[1] * times[1] * scale


def _printed(half: dict[str, str], column: str) -> tuple[float, float] | None:
    """Return the bounds of the number that was rounded to the text."""
    try:
        value = Decimal(half.get(column, ""))
    except InvalidOperation:
        return None
    if not value.is_finite() or value <= 0:
        return None
    exponent = value.as_tuple().exponent
    half_digit = 0.5 * 10.0 ** (exponent if isinstance(exponent, int) else 0)
    return float(value) - half_digit, float(value) + half_digit
