"""How many ranks a table is of, where no line lists them: bus bandwidth over algorithm bandwidth says.

A collective's factor between the two is a function of its ranks, 2(n-1)/n for all_reduce. What was
printed was rounded, so each row leaves an interval; they are cut with one another.
"""

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from sim.collective import KINDS
from sim.record import RecordError
from validation.readers.nccl_tests.table import Cells

_MOST = 4096
"""Beyond this many ranks no printed bandwidth tells two numbers apart."""

_ADVICE = "write a line '# nThread 1 nGpus 8' above for one process of 8 GPUs, or list the ranks"


def ranks_of(rows: list[Cells], kind: str, per_process: int, place: str) -> int:
    """The one number of ranks that fits; raise `RecordError` where several do, or none.

    ``per_process``, if more than one, is how many ranks a process was told to drive (``-t`` times
    ``-g``): a divisor of the number, and the number itself where the bandwidths do not tell.
    """
    counts = fitting(rows, kind, per_process)
    if len(counts) == 1:
        return counts[0]
    if per_process > 1 and per_process in counts and not _tells(kind):
        return per_process
    if not counts:
        found = f"its bandwidths fit no number of ranks of {kind}"
    elif _tells(kind):
        found = f"its bandwidths fit {counts[0]} to {counts[-1]} ranks"
    else:
        found = f"bandwidths of {kind} do not tell how many"
    raise RecordError(f"{place}: no ranks are listed above, and {found}; {_ADVICE}")


def fitting(rows: list[Cells], kind: str, per_process: int) -> list[int]:
    """All numbers of ranks that the printed bandwidths allow."""
    low, high = 0.0, float("inf")
    for least, most in _intervals(rows):
        low, high = max(low, least), min(high, most)
    step = max(per_process, 1)
    counts = range(step if step > 1 else 2, _MOST + 1, step)
    return [ranks for ranks in counts if low <= KINDS[kind].busbw_factor(ranks) <= high]


def _tells(kind: str) -> bool:
    return KINDS[kind].busbw_factor(2) != KINDS[kind].busbw_factor(3)


def _intervals(rows: list[Cells]) -> Iterator[tuple[float, float]]:
    """Between which numbers each half row's bus bandwidth over its algorithm bandwidth lies."""
    for row in rows:
        for half in (row.out_of_place, row.in_place):
            times, buses = _printed(half, "time"), _printed(half, "busbw")
            if times and buses and row.nbytes:
                scale = 1e3 * row.time_us / row.nbytes
                yield buses[0] * times[0] * scale, buses[1] * times[1] * scale


def _printed(half: dict[str, str], column: str) -> tuple[float, float] | None:
    """Between which numbers lies what was rounded to the text."""
    try:
        value = Decimal(half.get(column, ""))
    except InvalidOperation:
        return None
    if not value.is_finite() or value <= 0:
        return None
    exponent = value.as_tuple().exponent
    half_digit = 0.5 * 10.0 ** (exponent if isinstance(exponent, int) else 0)
    return float(value) - half_digit, float(value) + half_digit
