"""The model of all rows: values of each phase and call, with intervals from rows that fits did not see."""

from collections.abc import Sequence

import numpy as np

from ringside.sim.libraries.experts.measured import CALLERS, CallFit, ExpertModel, PhaseFit
from ringside.sim.libraries.experts.mechanisms import MECHANISMS
from ringside.sim.libraries.experts.tokens import PHASES
from ringside.sim.libraries.experts.work import Floats
from ringside.validation.experts.fit import PhaseRows, fit_call, fit_phase, spread_of, task_of
from ringside.validation.published.experts import ExchangeRow

LEAST_SPREAD = 0.05
"""Smallest interval in log time: runs of one kind vary as much."""


def fit_model(rows: Sequence[ExchangeRow], growth: float = 0.0) -> ExpertModel:
    """Fit every phase that rows measured, and every framework's calls.

    Intervals come from leaving out machines in turn; ``growth`` is the error that a doubling of machines or
    ranks beyond the rows adds.
    """
    phases: dict[str, dict[str, PhaseFit]] = {}
    for name, mechanism in MECHANISMS.items():
        selected = [PhaseRows.of(rows, name, phase) for phase in mechanism.phases]
        phases[name] = {one.phase: _phase_fit(one, growth) for one in selected if one.rows}
    kernels = ExpertModel(phases, {})
    return ExpertModel(phases, {caller: _calls(rows, caller, kernels) for caller in CALLERS[1:]})


def held_out(rows: PhaseRows) -> tuple[Floats, Floats]:
    """Return log errors of rows whose machine or number of ranks the fits did not see, and weights."""
    machines = sorted({row.machine for row in rows.rows})
    ranks = sorted({row.ranks for row in rows.rows})
    errors, weights = [], []
    for place in machines if len(machines) > 1 else ranks:
        judged, others = rows.parted(place)
        if others.rows:
            off = np.log(judged.predicted(fit_phase(others)) / judged.us)
            errors.append(off)
            weights.append(np.full(len(off), 1 / len(off)))
    if not errors:
        return np.log(rows.predicted(fit_phase(rows)) / rows.us), np.ones(len(rows.rows))
    return np.concatenate(errors), np.concatenate(weights)


def _phase_fit(rows: PhaseRows, growth: float) -> PhaseFit:
    return PhaseFit(
        values=fit_phase(rows),
        spread=max(spread_of(*held_out(rows)), LEAST_SPREAD),
        rows=len(rows.rows),
        nodes=max(task_of(row)[1].nodes for row in rows.rows),
        ranks=max(row.ranks for row in rows.rows),
        doubling=growth,
    )


def _calls(rows: Sequence[ExchangeRow], caller: str, kernels: ExpertModel) -> dict[str, dict[str, CallFit]]:
    calls: dict[str, dict[str, CallFit]] = {}
    for name, fits in kernels.phases.items():
        for phase in PHASES:
            own = [row for row in rows if (row.mechanism, row.caller) == (name, caller) and row.us(phase) > 0]
            if own and phase in fits:
                us = kernels.kernels_us(name, phase, [task_of(row) for row in own])
                calls.setdefault(name, {})[phase] = fit_call(us, own, phase)
    return calls
