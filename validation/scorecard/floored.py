"""Public logs of healthy machines held against their floors, as they are and slowed.

Each is predicted without its site; then with the other runs of its site as the anchor, where there are any.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringside.sim.libraries.nccl.measured import MeasuredModel
from ringside.sim.record import Record
from ringside.validation.compare import Compared
from ringside.validation.floors import LARGE, FlooredRow, Own, floored, own_times, verdicts
from ringside.validation.nccl.fit import fit
from ringside.validation.nccl.observed import NcclRow, choose
from ringside.validation.scorecard.collectives import ANOTHER, splits

SLOWED, SLOWED_BESIDE_OTHERS = 1.7, 1.25
"""Factors on times of `LARGE` or more, where the site is unknown, and where its other runs are the anchor."""


@dataclass(slots=True)
class FloorScore:
    """Runs with rows of `LARGE` or more: how many are below their floors, healthy and slowed."""

    runs: int = 0
    alarms: int = 0
    flagged: int = 0

    def judge(self, compared: Sequence[Compared], factor: float, false_alarms: float, own: Own) -> None:
        """Count a healthy run, and the same one slowed by a factor."""
        slowed = [_slowed(one, factor) for one in compared]
        self.runs += 1
        self.alarms += _is_below(floored(compared, false_alarms, own))
        self.flagged += _is_below(floored(slowed, false_alarms, own))


def floor_scores(records: Sequence[Record], false_alarms: float) -> tuple[FloorScore, FloorScore]:
    """Judge every run by a fit without its site, and by one that the site's other runs anchor."""
    unseen, beside_others = FloorScore(), FloorScore()
    for split in splits(records):
        if split.name != ANOTHER:
            continue
        model = fit(split.fitted, pooled=split.pooled, network=split.network).model
        for run in dict.fromkeys(row.run for row in split.judged):
            rows = [row for row in split.judged if row.run == run]
            others = [row for row in split.judged if row.run != run]
            if max(row.record.nbytes for row in rows) < LARGE or not choose(rows, model.facts).tasks:
                continue
            unseen.judge(_compared(model, rows), SLOWED, false_alarms, {})
            if choose(others, model.facts).tasks:
                own = own_times([row.record for row in others])
                anchored = _compared(_anchored(model, others), rows)
                beside_others.judge(anchored, SLOWED_BESIDE_OTHERS, false_alarms, own)
    return unseen, beside_others


def _anchored(model: MeasuredModel, rows: Sequence[NcclRow]) -> MeasuredModel:
    chosen = choose(rows, model.facts)
    return model.anchored(chosen.tasks, [rows[place].record.time_s for place in chosen.kept])


def _compared(model: MeasuredModel, rows: Sequence[NcclRow]) -> list[Compared]:
    chosen = choose(rows, model.facts)
    times = model.predict(chosen.tasks)
    ends = zip(times.time_s.tolist(), times.lo_s.tolist(), times.hi_s.tolist(), strict=True)
    return [
        Compared(rows[place].record, time_s, lo_s, hi_s, "")
        for place, (time_s, lo_s, hi_s) in zip(chosen.kept, ends, strict=True)
    ]


def _is_below(rows: Sequence[FlooredRow]) -> bool:
    return any(run.below for run in verdicts(rows))


def _slowed(one: Compared, factor: float) -> Compared:
    """Return the row, of `LARGE` or more slowed."""
    if one.record.nbytes < LARGE:
        return one
    record = replace(one.record, time_s=one.record.time_s * factor)
    return Compared(record, one.predicted_s, one.lo_s, one.hi_s, one.set)
