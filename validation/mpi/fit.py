"""MPI's fit and its report: priors of a machine's parameters, updated by its measurements (robust MAP).

Log-normal priors, a soft-L1 loss of log time; whether scratch memory is kept between calls is chosen by the
better fit; then the correction of the residuals.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from ringside.sim.libraries.mpi.form import time_us, work_of
from ringside.sim.libraries.mpi.measured import (
    EXPECTED,
    KEPT_MIB,
    PARAMETERS,
    MpiModel,
    StoredMpi,
    corrected,
    correction_lines,
)
from ringside.sim.record import Record, RecordError
from ringside.topologies.catalogue import split
from ringside.topologies.units import format_size
from ringside.validation.errors import summarize
from ringside.validation.mpi.observed import MpiRow, is_observable, observed

Floats = NDArray[np.float64]

SPREAD = 0.08
"""Log spread of rows around the form."""

LEAST_NOISE = 0.05

SHARED = ("inside_us", "inside_GBps", "memory_GBps")
"""Parameters determined only by rows with several ranks per node, which then determine no others."""


def fit(rows: Sequence[MpiRow]) -> MpiModel:
    """Fit the machine's parameters to rows of one machine."""
    work = work_of([row.task for row in rows])
    log_us = np.log([row.record.time_s * 1e6 for row in rows])
    values = _values(rows)
    left = log_us - np.log(time_us(work, values))
    correction = corrected(work, left, np.full(len(rows), SPREAD))
    mean, _ = correction.predict(work)
    noise = max(1.4826 * float(np.median(np.abs(left - mean))), LEAST_NOISE)
    nodes = tuple(sorted({row.record.num_nodes or row.record.ranks for row in rows}))
    tasks = tuple(sorted({row.task.port.per_node for row in rows}))
    return MpiModel(values, correction, noise, nodes, tasks)


def _values(rows: Sequence[MpiRow]) -> dict[str, float]:
    """Fit rows with one rank per node first, if any; then the shared parameters to the others."""
    usual = {name: one.value for name, one in EXPECTED.items()}
    alone = [row for row in rows if row.task.port.per_node == 1]
    trials = [_descend(alone or rows, usual | {"kept_MiB": kept}, PARAMETERS) for kept in KEPT_MIB]
    _, values = min(trials, key=lambda trial: trial[0])
    shared = [row for row in rows if row.task.port.per_node > 1]
    return _descend(shared, values, SHARED)[1] if alone and shared else values


def _descend(
    rows: Sequence[MpiRow], values: Mapping[str, float], free: Sequence[str]
) -> tuple[float, dict[str, float]]:
    """Return the maximum a posteriori, and its cost; parameters without rows stay at their priors."""
    work = work_of([row.task for row in rows])
    log_us = np.log([row.record.time_s * 1e6 for row in rows])
    centre = np.log([EXPECTED[name].value for name in free])
    sigma = np.array([EXPECTED[name].sigma for name in free])

    def tried(x: Floats) -> dict[str, float]:
        return {**values, **dict(zip(free, np.exp(x).tolist(), strict=True))}

    def residuals(x: Floats) -> Floats:
        off = (np.log(time_us(work, tried(x))) - log_us) / SPREAD
        soft = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))
        return np.concatenate([soft, (x - centre) / sigma])

    solution = least_squares(residuals, centre, x_scale=sigma)
    return float(solution.cost), tried(solution.x)


MIN_ROWS = 4
WORST_ROWS = 3


def calibrate_mpi(records: Sequence[Record], cluster: str, settings: Mapping[str, str]) -> StoredMpi:
    """Fit MPI's model to those records of one cluster that it has a form for."""
    known = [record for record in records if is_observable(record)]
    if len(known) < MIN_ROWS:
        raise RecordError(f"too few records of MPI to fit ({len(known)}); measure {MIN_ROWS} sizes or more")
    rows = observed(known, cluster, settings)
    model = fit(rows)
    times = np.array([record.time_s for record in known])
    errors = model.seconds([row.task for row in rows])[0] / times - 1
    summary = summarize(errors.tolist())
    return StoredMpi(
        machine=split(cluster)[0],
        rows=len(rows),
        versions=tuple(sorted({record.library_version or "MPI" for record in known})),
        nodes=model.nodes,
        tasks=model.tasks,
        noise=round(model.noise, 4),
        kept_MiB=model.values["kept_MiB"],
        median_error=round(summary.median, 4),
        p90_error=round(summary.p90, 4),
        worst=tuple(
            f"{known[i].algorithm} {known[i].collective} of {format_size(known[i].nbytes)} on "
            f"{known[i].ranks} ranks {errors[i]:+.1%}"
            for i in np.argsort(-np.abs(errors))[:WORST_ROWS]
        ),
        parameters={name: float(f"{model.values[name]:.5g}") for name in PARAMETERS},
        correction=correction_lines(model.correction),
    )


def report_mpi(stored: StoredMpi) -> list[str]:
    """Report the fitted parameters beside their priors."""
    lines = [
        "",
        f"mpi, {stored.described}: error median {stored.median_error:.1%}, 90th percentile "
        f"{stored.p90_error:.1%}",
        f"  {'kept_MiB':<13} {stored.kept_MiB:>8.4g}            above it, scratch memory is allocated again",
    ]
    for name in PARAMETERS:
        one = EXPECTED[name]
        lines.append(f"  {name:<13} {stored.parameters[name]:>8.4g} (of {one.value:>5g}) {one.meaning}")
    return [*lines, f"  worst rows: {'; '.join(stored.worst)}"]
