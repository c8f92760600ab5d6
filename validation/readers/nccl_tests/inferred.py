"""Infer what an old log omits from its table: the collective, and the number of ranks.

nccl-tests prints the program's name since 2.17. Before, the columns decide: an operator means a reduction, a
root broadcast or reduce; bus bandwidth x time / size is the collective's own factor of the rank count;
all_to_all and sendrecv check no results in place (``N/A``).

Where no line lists the ranks, the same factor gives their number: 2(n-1)/n for all_reduce. Printed numbers
are rounded, so each row leaves an interval; the intervals are intersected.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation

from ringside.sim.collective import KINDS
from ringside.sim.record import RecordError
from ringside.validation.readers.nccl_tests.table import Cells

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
