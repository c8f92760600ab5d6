"""Public logs of sound machines judged by `explain`: false causes, and the same logs made slow."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from ringside.sim.calibration import shipped
from ringside.sim.libraries.nccl.measured import MeasuredModel
from ringside.sim.record import Record
from ringside.validation.explain.causes import LINK
from ringside.validation.explain.nccl import NcclFamily
from ringside.validation.explain.verdict import judge, slow_rows
from ringside.validation.nccl.fit import fit
from ringside.validation.nccl.observed import NcclRow, choose, observed
from ringside.validation.scorecard.collectives import ANOTHER, splits

SLOWED = 0.5
"""Share of the bandwidth between nodes in logs that are made slow."""


@dataclass(frozen=True, slots=True)
class LogScore:
    """Judged logs: a cause is named in ``blamed`` of the ``sound`` ones, in ``caught`` of the ``slowed``."""

    sound: int
    blamed: int
    slowed: int
    caught: int


def log_score(records: Sequence[Record]) -> LogScore:
    """Judge every run by a fit without its site, or by the shipped one if its machine has no other site."""
    families = list(_families(records))
    blamed = [bool(len(slow_rows(family)) and judge(family).named) for family in families]
    caught = [bool(judge(_slowed(family)).named) for family in families if LINK in family.causes]
    return LogScore(len(blamed), sum(blamed), len(caught), sum(caught))


def _families(records: Sequence[Record]) -> Iterator[NcclFamily]:
    machines = {record.cluster for record in records}
    for split in splits(records):
        if split.name == ANOTHER:
            machines.discard(split.machine)
            model = fit(split.fitted, pooled=True).model
            yield from _of_runs(split.judged, split.machine, model)
    for machine in sorted(machines):
        known = shipped(machine)
        if known and known.nccl:
            own = [record for record in records if record.cluster == machine]
            yield from _of_runs(observed(own, machine, {}), machine, known.nccl.model)


def _of_runs(rows: Sequence[NcclRow], machine: str, model: MeasuredModel) -> Iterator[NcclFamily]:
    for run in dict.fromkeys(row.run for row in rows):
        of_run = [row for row in rows if row.run == run]
        if choose(of_run, model.facts).kept:
            yield NcclFamily([row.record for row in of_run], machine, {}, model, {})


def _slowed(family: NcclFamily) -> NcclFamily:
    """Return the log with the times that slow links between nodes would have given it."""
    slower = copy(family)
    factors = np.exp(family.under(LINK, SLOWED).mean - family.as_family.mean)
    slower.records = [
        replace(record, time_s=record.time_s * float(factor))
        for record, factor in zip(family.records, factors, strict=True)
    ]
    return slower
