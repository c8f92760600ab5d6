"""Which collective a table is of, where an old log does not say.

nccl-tests prints the program's name since 2.17. Before, the columns tell: who has an operator
reduces, who has a root is broadcast or reduce; bus bandwidth x time / size is the collective's own
factor of the rank count; all_to_all and sendrecv check no results in place (``N/A``).
"""

from collections.abc import Callable

from sim.collective import KINDS
from sim.record import RecordError
from validation.readers.nccl_tests.table import Cells

_KINDS = {
    (True, True): ("reduce",),
    (True, False): ("all_reduce", "reduce_scatter", "sendrecv"),
    (False, True): ("broadcast",),
    (False, False): ("all_gather", "all_to_all"),
}
"""By operator and root; sendrecv prints an operator that it has no use for."""

_UNCHECKED_IN_PLACE = ("all_to_all", "sendrecv")


def infer(rows: list[Cells], fits: Callable[[str], bool], place: str, file_name: str) -> str:
    """The one collective that fits all evidence; raise `RecordError` where several do, or none.

    ``fits`` says of a collective whether the bandwidths may be its own.
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
    found = f"fits {' and '.join(possible)}" if possible else f"fits none of {', '.join(KINDS)}"
    raise RecordError(
        f"{place}: the log does not say which collective this is, and the table {found}; "
        "expected a line '# Collective test starting: all_reduce_perf' (or another) above: write one"
    )


def factor_fits(kind: str, rows: list[Cells], ranks: int) -> bool:
    """Whether the largest printed bus bandwidth, within its rounding, is this collective's."""
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


def _wrong(half: dict[str, str]) -> str:
    return half.get("#wrong", half.get("error", "N/A"))


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
