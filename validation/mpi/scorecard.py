"""The errors of MPI's model on held-out rows, and how often it names the winner.

Every question fits some rows of a machine and judges others: more nodes, another collective. A row is never
judged by a fit that included it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ringside.sim.record import Record
from ringside.validation.mpi.fit import fit
from ringside.validation.mpi.observed import is_observable, observed

TIED = 0.1
"""Algorithms this close to the fastest count as tied, by the variation between runs of one kind."""

ASKED = (("mare-nostrum", "all_reduce", 32, 60), ("leonardo", "all_gather", 4, 32))
"""Machine, collective, nodes fitted and nodes judged for small calibrations."""


@dataclass(frozen=True, slots=True)
class Question:
    """Rows to fit and rows to judge of one machine."""

    name: str
    machine: str
    fitted: list[Record]
    judged: list[Record]


@dataclass(frozen=True, slots=True)
class Judged:
    """A held-out record, and the model's prediction."""

    record: Record
    time_s: float
    lo_s: float
    hi_s: float

    @property
    def error(self) -> float:
        """The absolute relative error."""
        return abs(self.time_s / self.record.time_s - 1)


@dataclass(frozen=True, slots=True)
class Score:
    """A question's score over the judged rows, except ``fit_error``, the median of those fitted.

    ``covered`` is the share of rows inside the model's interval. ``cells`` are sizes on a number of nodes
    with several measured algorithms; in ``won`` the model names the fastest, in ``near`` one at most `TIED`
    slower.
    """

    name: str
    fitted: int
    fit_error: float
    judged: int
    median_error: float
    p90_error: float
    covered: float
    cells: int
    won: int
    near: int


def questions(records: Sequence[Record]) -> Iterator[Question]:
    """Yield the two questions of small calibrations, then each machine's by nodes and by collective."""
    known = [record for record in records if is_observable(record)]
    forced = [record for record in known if record.algorithm != "auto" and record.ranks == record.num_nodes]
    for machine, kind, few, many in ASKED:
        rows = [one for one in forced if (one.cluster, one.collective) == (machine, kind)]
        yield Question(
            f"{machine} {kind}, fitted on {few} nodes, judged on {many}",
            machine,
            [one for one in rows if one.num_nodes == few],
            [one for one in rows if one.num_nodes == many],
        )
    for machine in sorted({one.cluster for one in forced}):
        rows = [one for one in forced if one.cluster == machine]
        most = max(one.num_nodes for one in rows)
        yield Question(
            f"{machine}, fitted below {most} nodes, judged there",
            machine,
            [one for one in rows if one.num_nodes < most],
            [one for one in rows if one.num_nodes == most],
        )
        for kind in sorted({one.collective for one in rows}):
            yield Question(
                f"{machine} {kind}, fitted on all others",
                machine,
                [one for one in rows if one.collective != kind],
                [one for one in rows if one.collective == kind],
            )


def score(question: Question) -> Score:
    """Fit, predict and judge."""
    model = fit(observed(question.fitted, question.machine, {}))

    def judged(records: Sequence[Record]) -> list[Judged]:
        times = model.seconds([row.task for row in observed(records, question.machine, {})])
        return [Judged(record, *map(float, ends)) for record, *ends in zip(records, *times, strict=True)]

    held_out = judged(question.judged)
    errors = [one.error for one in held_out]
    cells, won, near = winners(held_out)
    return Score(
        name=question.name,
        fitted=len(question.fitted),
        fit_error=float(np.median([one.error for one in judged(question.fitted)])),
        judged=len(held_out),
        median_error=float(np.median(errors)),
        p90_error=float(np.percentile(errors, 90)),
        covered=float(np.mean([one.lo_s <= one.record.time_s <= one.hi_s for one in held_out])),
        cells=cells,
        won=won,
        near=near,
    )


def winners(rows: Sequence[Judged]) -> tuple[int, int, int]:
    """Return cells with several measured algorithms, those with the fastest named, those with a tied one.

    An algorithm measured in several implementations counts by its fastest.
    """
    cells: dict[tuple[str, int, int], dict[str, Judged]] = {}
    for row in rows:
        record = row.record
        at = cells.setdefault((record.collective, record.num_nodes, record.nbytes), {})
        best = at.get(record.algorithm)
        if best is None or record.time_s < best.record.time_s:
            at[record.algorithm] = row
    contests = [list(rows_at.values()) for rows_at in cells.values() if len(rows_at) > 1]
    won = near = 0
    for several in contests:
        least = min(row.record.time_s for row in several)
        named = min(several, key=lambda row: row.time_s).record.time_s
        won += named == least
        near += named <= least * (1 + TIED)
    return len(contests), won, near
