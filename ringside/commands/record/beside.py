"""The output of ``ringside record --beside``: what a recorded script does otherwise than a strategy."""

from collections.abc import Iterator
from itertools import pairwise

from ringside import console
from ringside.sim.recorded.sound import title
from ringside.topologies.units import format_duration, format_size
from ringside.validation.beside import Beside, RankBeside


def print_beside(answer: Beside, *, all_rows: bool) -> None:
    """Write the differences as a table, with ``all_rows`` also what is the same."""
    strategy = answer.question.strategy
    heads = [("rank", ""), ("what", ""), ("ranks", ""), ("bytes", "(each)"), ("recorded", ""), (strategy, "")]
    rows = [row for one in answer.ranks for row in _rows(one, all_rows=all_rows)]
    if any(count.places for one in answer.ranks for count in one.exchanges.counts):
        heads.append(("place", ""))
    else:
        rows = [row[: len(heads)] for row in rows]
    console.print_answer(
        answer.headline, console.TextTable(heads, rows), rests_on=answer.rests_on,
        notes=[*_comments(answer), *answer.notes],
    )  # fmt: skip


def _comments(answer: Beside) -> list[str]:
    strategy = answer.question.strategy
    peaks = max(answer.ranks, key=lambda one: one.peaks[0]).peaks
    lines = [
        f"{title(answer.job)} on {answer.job.ranks} ranks, beside {strategy} of {answer.question.model} on "
        f"{answer.question.where}",
        f"memory peaks at {_mib(peaks[0])}, {strategy}'s at {_mib(peaks[1])}",
    ]
    if answer.steps is not None:
        script, own = answer.steps
        exposed = _both(script.exposed_s, own.exposed_s)
        lines.append(
            f"products and attention at one price, all else free: a step of "
            f"{_both(script.step_s, own.step_s)}, exposed communication {exposed}"
        )
    return lines


def _both(recorded_s: float, own_s: float) -> str:
    change = f" ({own_s / recorded_s - 1:+.1%})" if recorded_s else ""
    return f"{format_duration(recorded_s, 4)} and {format_duration(own_s, 4)}{change}"


def _rows(one: RankBeside, *, all_rows: bool) -> Iterator[tuple[console.Cell, ...]]:
    exchanges = one.exchanges
    for count in exchanges.counts if all_rows else exchanges.different:
        kind, ranks, nbytes = count.exchanged
        yield (
            *(one.rank, kind, ranks_text(ranks), format_size(nbytes), count.first, count.second),
            " ".join(count.places),
        )
    for kind, (first, second) in exchanges.nbytes.items():
        if all_rows or first != second:
            yield one.rank, f"{kind} in all", "", "", format_size(first), format_size(second), ""
    for pool, (first, second) in one.memory.items():
        if all_rows or first != second:
            yield one.rank, pool, "", "", _mib(first), _mib(second), ""


def ranks_text(ranks: tuple[int, ...]) -> str:
    """Return ``0-7``, ``0-56 by 8``, or single ranks."""
    steps = {later - earlier for earlier, later in pairwise(ranks)}
    if len(ranks) < 3 or len(steps) > 1:
        return ",".join(map(str, ranks))
    (step,) = steps
    return f"{ranks[0]}-{ranks[-1]}" + (f" by {step}" if step > 1 else "")


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
