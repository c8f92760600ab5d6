"""Exchanges of experts' tokens on held-out rows, and the share of cells whose fastest library is predicted.

A row is never judged by a fit that included it, nor by an interval that did.
"""

from collections.abc import Sequence
from math import nan

from ringside.sim.libraries.experts.exchange import traffic_s
from ringside.sim.libraries.experts.measured import CALLERS
from ringside.sim.libraries.experts.tokens import PHASES
from ringside.validation.experts.fit import task_of
from ringside.validation.experts.splits import ExchangeSplit, growth, splits
from ringside.validation.published.experts import ExchangeRow
from ringside.validation.scorecard.judged import Counted, JudgedRow, JudgedTable
from ringside.validation.scorecard.mpi import TIED

USUAL_SMS = 20
"""DeepEP's own number of thread blocks, which cells compare with other libraries."""

Cell = tuple[object, ...]


def expert_tables() -> list[JudgedTable]:
    """Return a table for every split."""
    return [_table(split) for split in splits(growth())]


def _table(split: ExchangeSplit) -> JudgedTable:
    return JudgedTable(
        name=split.name,
        title="Dispatch and combine of experts' tokens",
        source="github.com/ai-dynamo/aiconfigurator; github.com/deepseek-ai/DeepEP",
        sets=split.sets,
        rule="bytes over the slower link's full rate",
        judged=lambda: judged(split),
        counted=lambda: winners(split),
    )


def judged(split: ExchangeSplit) -> list[JudgedRow]:
    """Return every measured phase of the split's rows beside its prediction."""
    return [_row(split, row, phase) for row in split.judged for phase in split.measured_phases(row)]


def _row(split: ExchangeSplit, row: ExchangeRow, phase: str) -> JudgedRow:
    band, one = split.band(row, phase), row.exchange
    who = row.mechanism if row.caller == CALLERS[0] else f"{row.caller}'s {row.mechanism}"
    links = max(traffic_s(row.mechanism, *task_of(row), (phase,))) if phase in PHASES else 0.0
    return JudgedRow(
        series=f"{row.cluster} {who}",
        what=f"{phase}, {one.tokens} of {one.hidden} to {one.topk} of {one.experts}, {row.ranks} ranks",
        measured=row.us(phase) * 1e-6,
        predicted=band.time_s,
        rule=links or nan,
        part=f"{who} {phase}",
        low=band.low_s,
        high=band.high_s,
    )


def winners(split: ExchangeSplit) -> tuple[Counted, ...]:
    """Count the cells in which the library with the least total is predicted, or one at most `TIED` slower.

    A cell is one exchange by several libraries, as the same caller measured them.
    """
    contests = [rows for rows in _cells(split.judged).values() if len(rows) > 1]
    won = near = 0
    if not contests:
        return ()
    for rows in contests:
        measured = {name: sum(row.us(one) for one in _summed(row)) for name, row in rows.items()}
        predicted = {
            name: sum(split.band(row, one).time_s for one in _summed(row)) for name, row in rows.items()
        }
        named, least = measured[min(predicted, key=lambda name: predicted[name])], min(measured.values())
        won += named == least
        near += named <= least * (1 + TIED)
    return Counted("winners named", won, len(contests)), Counted("or tied", near, len(contests))


def _summed(row: ExchangeRow) -> list[str]:
    return [phase for phase in ("prepare", *PHASES) if row.us(phase) > 0]


def _cells(rows: Sequence[ExchangeRow]) -> dict[Cell, dict[str, ExchangeRow]]:
    """Return rows with both phases by cell and mechanism; of several releases the newest."""
    cells: dict[Cell, dict[str, ExchangeRow]] = {}
    for row in rows:
        one = row.exchange
        if one.sms != USUAL_SMS or not all(row.us(phase) > 0 for phase in PHASES):
            continue
        shape = (one.hidden, one.topk, one.experts, one.tokens, one.routing)
        cell = cells.setdefault(
            (row.caller, row.cluster, row.ranks, one.dispatch_dtype, one.combine_dtype, *shape), {}
        )
        if row.mechanism not in cell or cell[row.mechanism].software < row.software:
            cell[row.mechanism] = row
    return cells
