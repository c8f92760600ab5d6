"""Public logs of healthy machines held against their floors, as they are and slowed.

Each is predicted without its site. Then a log of the site is known: the model is anchored by the healthy run,
and the same run is judged slowed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringside.sim.libraries.nccl.measured import MeasuredModel
from ringside.sim.record import Record
from ringside.validation.compare import Compared
from ringside.validation.floors import LARGE, floored, verdicts
from ringside.validation.nccl.fit import fit
from ringside.validation.nccl.observed import NcclRow, choose
from ringside.validation.scorecard.collectives import ANOTHER, splits

SLOWED, SLOWED_BESIDE_OWN = 1.7, 1.25
"""Factors on times of `LARGE` or more, where the site is unknown, and where its healthy run is the anchor."""


@dataclass(frozen=True, slots=True)
class FloorScore:
    """Runs of sites that the model has not seen.

    ``alarms`` of all ``runs`` are below their floors; of the ``large`` ones with rows of `LARGE` or more
    ``flagged`` are, slowed by `SLOWED`, and ``flagged_beside_own``, slowed by `SLOWED_BESIDE_OWN`, where the
    healthy run is the anchor.
    """

    runs: int
    alarms: int
    large: int
    flagged: int
    flagged_beside_own: int


def floor_score(records: Sequence[Record], false_alarms: float) -> FloorScore:
    """Judge every run by a fit without its site; machines of one site have none."""
    alarms, large, flagged, beside_own = list[bool](), 0, 0, 0
    for split in splits(records):
        if split.name != ANOTHER:
            continue
        model = fit(split.fitted, pooled=split.pooled, network=split.network).model
        for run in dict.fromkeys(row.run for row in split.judged):
            rows = [row for row in split.judged if row.run == run]
            chosen = choose(rows, model.facts)
            rows = [rows[place] for place in chosen.kept]
            if not _decided(compared := _compared(model, rows)):
                continue
            alarms.append(_is_below(compared, 1.0, false_alarms))
            if max(row.record.nbytes for row in rows) >= LARGE:
                own = model.anchored(chosen.tasks, [row.record.time_s for row in rows])
                large += 1
                flagged += _is_below(compared, SLOWED, false_alarms)
                beside_own += _is_below(_compared(own, rows), SLOWED_BESIDE_OWN, false_alarms)
    return FloorScore(len(alarms), sum(alarms), large, flagged, beside_own)


def _compared(model: MeasuredModel, rows: Sequence[NcclRow]) -> list[Compared]:
    tasks = choose(rows, model.facts).tasks
    if not tasks:
        return []
    times = model.predict(tasks)
    ends = zip(times.time_s, times.lo_s, times.hi_s, strict=True)
    return [Compared(row.record, *map(float, of), "") for row, of in zip(rows, ends, strict=True)]


def _decided(compared: Sequence[Compared]) -> bool:
    return bool(verdicts(floored(compared, 0.5)))


def _is_below(compared: Sequence[Compared], factor: float, false_alarms: float) -> bool:
    slowed = [_slowed(one, factor) for one in compared]
    return any(run.below for run in verdicts(floored(slowed, false_alarms)))


def _slowed(one: Compared, factor: float) -> Compared:
    """Return the row, of `LARGE` or more slowed."""
    if one.record.nbytes < LARGE:
        return one
    record = replace(one.record, time_s=one.record.time_s * factor)
    return Compared(record, one.predicted_s, one.lo_s, one.hi_s, one.set)
