"""Fit a calibration to measured records, and report its uncertainty and errors.

The parameters are few, physical and non-negative. Predicted time is, between kinks, linear in (alpha, beta,
gamma, launch): it is a longest path whose links cost sums of them. So the fit alternates between the slopes
at the current parameters and a robust fit with these slopes, until neither changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, lsq_linear

from ringside.sim.calibration import Calibration, Fit
from ringside.sim.libraries.mpi.library import Mpi
from ringside.sim.libraries.nccl.cluster import is_machine
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.libraries.nccl.send_times import SEND_KINDS
from ringside.sim.libraries.nccl.stored import Stored
from ringside.sim.parameters import Parameters
from ringside.sim.record import Record, RecordError, digest
from ringside.topologies.catalogue import split
from ringside.topologies.units import format_duration, format_size
from ringside.validation.errors import summarize
from ringside.validation.measurements import Measurements, measurements_of
from ringside.validation.mpi.fit import calibrate_mpi, report_mpi
from ringside.validation.nccl.calibrate import calibrate_nccl, report_nccl
from ringside.validation.rows import PlacedRecord, rows

Floats = NDArray[np.float64]

NAMES = ("alpha", "beta", "launch", "gamma")
"""The order in which parameters become free: one that earlier ones explain equally well stays fixed."""

_STARTS = [np.array([alpha, beta, 0.0, 0.0]) for alpha in (0.02, 0.1, 0.4) for beta in (0.1, 0.3, 0.9)]
_ROBUST = 0.1  # relative errors beyond a tenth weigh less and less
_ALIKE = 0.05
_ROWS_EACH = 2  # with fewer rows than this per parameter a fit follows noise
_ROUNDS = 10
_GAIN = 1e-3
_BOOTSTRAPS = 200
_TINY = 1e-12
_NOTHING = 1e-4  # the maximum share of a row's time


@dataclass(frozen=True, slots=True)
class Solution:
    """Fitted parameters, their bootstrap intervals, why some are fixed; each row's measured / predicted."""

    parameters: Parameters
    interval: dict[str, tuple[float, float]]
    fixed: dict[str, str]
    ratios: Floats


def fit(rows: Sequence[PlacedRecord]) -> Solution:
    """Fit the parameters to the rows' times, with equal weights in relative error."""
    measured = np.array([row.record.time_s for row in rows])
    scale = _scale(rows, measured)
    starts = [(scale * start, _times(rows, scale * start)) for start in _STARTS]
    theta, predicted = min(starts, key=lambda start: _cost(start[1] / measured))
    for most in (2, len(NAMES)):  # latency and bandwidth first: other terms show only beside them
        for _ in range(_ROUNDS):
            slopes = _slopes(rows, theta, predicted, 1e-6 * np.maximum(theta, scale))
            free, fixed = _free(slopes / measured[:, None], most)
            better = _walk(rows, measured, theta, predicted, _robust(slopes, measured, free), free)
            if better is None:
                break
            theta, predicted = better
    ratios = measured / predicted
    return Solution(_parameters(theta), _intervals(slopes, ratios, theta, free), fixed, ratios)


def _walk(
    rows: Sequence[PlacedRecord],
    measured: Floats,
    theta: Floats,
    predicted: Floats,
    target: Floats,
    free: list[int],
) -> tuple[Floats, Floats] | None:
    """Step from ``theta`` towards ``target`` while the rows' true times improve; None if they never do.

    The slopes hold up to the next kink only, so the target may lie beyond their range. Parameters that are
    not free stay 0.
    """
    before = _cost(predicted / measured)
    for share in (1.0, 0.5, 0.25, 0.1, 0.03):
        there = np.zeros_like(theta)
        there[free] = (theta + share * (target - theta))[free]
        times = _times(rows, there)
        if _cost(times / measured) < before * (1 - _GAIN):
            return there, times
    return None


def _cost(ratios: Floats) -> float:
    """Return the soft-L1 loss of the logarithms."""
    return float(np.sum(np.sqrt(1 + (np.log(np.maximum(ratios, _TINY)) / _ROBUST) ** 2) - 1))


def _times(rows: Sequence[PlacedRecord], theta: Floats) -> Floats:
    parameters = _parameters(theta)
    return np.array([row.time(parameters) for row in rows])


def _parameters(theta: Floats) -> Parameters:
    return Parameters(**dict(zip(NAMES, theta.tolist(), strict=True)))


def _scale(rows: Sequence[PlacedRecord], measured: Floats) -> Floats:
    """Return an upper bound of each parameter: the fastest row is all messages, or all bytes."""
    nbytes = np.array([max(row.record.nbytes, 1) for row in rows])
    message, byte = measured.min(), (measured / nbytes).min()
    return np.array([message, byte, message, byte])


def _slopes(rows: Sequence[PlacedRecord], theta: Floats, predicted: Floats, step: Floats) -> Floats:
    """Return the growth of each row's predicted time per parameter, from ``theta`` over a ``step``."""
    columns = [
        (_times(rows, theta + delta * axis) - predicted) / delta
        for delta, axis in zip(step, np.eye(len(step)), strict=True)
    ]
    return np.stack(columns, axis=1)


def _free(columns: Floats, most: int) -> tuple[list[int], dict[str, str]]:
    """Return which parameters, at most ``most``, the rows distinguish, and why not the others."""
    free: list[int] = []
    fixed = {}
    for index, name in enumerate(NAMES):
        column = columns[:, index]
        known = columns[:, free]
        rest = column - known @ np.linalg.lstsq(known, column, rcond=None)[0] if free else column
        if not column.any():
            fixed[name] = "these rows do not depend on it"
        elif np.linalg.norm(rest) < _ALIKE * np.linalg.norm(column):
            fixed[name] = f"these rows cannot distinguish it from {' and '.join(NAMES[i] for i in free)}"
        elif len(free) >= min(most, len(columns) // _ROWS_EACH):
            fixed[name] = f"{len(columns)} rows are too few for another parameter"
        else:
            free.append(index)
    return free, fixed


def _robust(slopes: Floats, measured: Floats, free: list[int]) -> Floats:
    """Return non-negative parameters that minimise log(measured / predicted), robust against outliers."""
    relative = slopes[:, free] / measured[:, None]
    scale = np.abs(relative).max(axis=0)
    matrix = relative / scale
    begin = np.maximum(lsq_linear(matrix, np.ones(len(measured)), bounds=(0, np.inf)).x, _TINY)

    def residuals(x: Floats) -> Floats:
        logs: Floats = np.log(np.maximum(matrix @ x, _TINY))
        return logs

    solution = least_squares(residuals, begin, bounds=(0, np.inf), loss="soft_l1", f_scale=_ROBUST)
    theta = np.zeros(slopes.shape[1])
    theta[free] = np.where(solution.x < _NOTHING, 0.0, solution.x) / scale
    return theta


def _intervals(
    slopes: Floats, ratios: Floats, theta: Floats, free: list[int]
) -> dict[str, tuple[float, float]]:
    """Return the 5th to 95th percentile of each free parameter over fits to resampled residuals.

    The intervals are around the estimate: the search may end away from the optimum of its slopes, so only the
    scatter of the fits counts.
    """
    draw, predicted = np.random.default_rng(0), slopes @ theta
    fits = [
        _robust(slopes, predicted * draw.choice(ratios, size=len(ratios)), free) for _ in range(_BOOTSTRAPS)
    ]
    scatter = np.array(fits) - np.median(fits, axis=0)
    low, high = theta + np.percentile(scatter, [5, 95], axis=0)
    return {NAMES[i]: (max(float(low[i]), 0.0), float(high[i])) for i in free}


MIN_ROWS = 4
WORST_ROWS = 3


def calibrate(
    records: Sequence[Record],
    cluster: str,
    settings: Mapping[str, str] | None = None,
    sources: Mapping[str, str] | None = None,
    *,
    pool_sites: bool = False,
) -> Calibration:
    """Fit NCCL's measured model, MPI's, and for everything else each library and algorithm.

    ``cluster`` names the topology that the records ran on; ``sources`` are file names and digests for the
    provenance. Raise `ringside.sim.record.RecordError` for records that must not be mixed or are too few.
    """
    return calibrate_measurements(
        measurements_of(records, cluster, settings or {}, pool_sites=pool_sites), sources or {}
    )


def calibrate_measurements(measured: Measurements, sources: Mapping[str, str]) -> Calibration:
    """Fit measurements of one cluster, as `calibrate` does."""
    records, cluster, settings = measured.records, measured.cluster, measured.settings
    own = {Mpi.name, Nccl.name} if is_machine(cluster) else {Mpi.name}
    of_nccl = [record for record in measured.ran if record.library == Nccl.name and Nccl.name in own]
    of_mpi = [record for record in records if record.library == Mpi.name]
    groups: dict[tuple[str, str, str], list[PlacedRecord]] = {}
    for row in rows([record for record in records if record.library not in own], cluster, settings):
        key = row.record.library, row.record.algorithm, row.record.protocol
        groups.setdefault(key, []).append(row)
    few = [f"{'/'.join(key)}: {len(group)}" for key, group in groups.items() if len(group) < MIN_ROWS]
    if few:
        raise RecordError(f"too few records to fit ({', '.join(few)}); measure {MIN_ROWS} sizes or more")
    sends = [record for record in of_nccl if record.collective in SEND_KINDS]
    machine, nccl = split(cluster)[0], None
    if len(sends) < len(of_nccl):
        nccl = calibrate_nccl(of_nccl, machine, settings)
    return Calibration(
        cluster=records[0].cluster,
        topology=cluster,
        date=datetime.now(UTC).date().isoformat(),
        sources=dict(sources),
        fingerprint=_common(records),
        fits=tuple(_fit(*key, group) for key, group in groups.items()),
        used=tuple(sorted(digest(record) for record in records)),
        nccl=nccl,
        sends=_sends(sends, machine, settings, nccl),
        mpi=calibrate_mpi(of_mpi, cluster, settings) if of_mpi else None,
        settings=dict(settings),
    )


def _sends(
    records: Sequence[Record], machine: str, settings: Mapping[str, str], nccl: Stored | None
) -> Stored | None:
    """Fit sends and receives; too few are an error only where there is nothing else."""
    if not records or (nccl and len(records) < MIN_ROWS):
        return None
    return calibrate_nccl(records, machine, settings, SEND_KINDS, nccl.facts if nccl else None)


def report(calibration: Calibration) -> str:
    """Report the fitted parameters, their uncertainty and the residual errors."""
    lines = [f"calibration of {calibration.cluster} as {calibration.topology}"]
    for of_nccl in filter(None, (calibration.nccl, calibration.sends)):
        lines += report_nccl(of_nccl)
    if calibration.mpi:
        lines += report_mpi(calibration.mpi)
    for fitted in calibration.fits:
        lines += [
            "",
            f"{fitted.library}/{fitted.algorithm}/{fitted.protocol}: {fitted.rows} rows, error median "
            f"{fitted.median_error:.1%}, 90th percentile {fitted.p90_error:.1%}; nine of ten measured "
            f"{fitted.band[0]:.2f} to {fitted.band[1]:.2f} times predicted",
        ]
        for name in NAMES:
            value = getattr(fitted.parameters, name)
            text = f"  {name:<6} {_unit(name, value):>14}"
            if name in fitted.fixed:
                text += f"  (fixed: {fitted.fixed[name]})"
            else:
                low, high = fitted.interval[name]
                text += f"  90 % interval {_unit(name, low)} to {_unit(name, high)}"
                text += "" if value else "  (at boundary)"
            lines.append(text)
        lines.append(f"  worst rows: {'; '.join(fitted.worst)}")
    return "\n".join(lines)


def _fit(library: str, algorithm: str, protocol: str, group: list[PlacedRecord]) -> Fit:
    solution = fit(group)
    errors = 1 / solution.ratios - 1
    summary = summarize(errors.tolist())
    low, high = np.percentile(solution.ratios, [5, 95])
    return Fit(
        library=library,
        algorithm=algorithm,
        protocol=protocol,
        parameters=solution.parameters,
        interval=solution.interval,
        fixed=solution.fixed,
        band=(min(float(low), 1.0), max(float(high), 1.0)),
        rows=len(group),
        median_error=summary.median,
        p90_error=summary.p90,
        worst=tuple(
            f"{group[i].record.collective} of {format_size(group[i].record.nbytes)} on "
            f"{group[i].record.ranks} ranks {errors[i]:+.1%}"
            for i in np.argsort(-np.abs(errors))[:WORST_ROWS]
        ),
    )


def _common(records: Sequence[Record]) -> dict[str, str]:
    """Return the entries that all records' fingerprints share."""
    first = records[0].fingerprint
    return {
        key: value
        for key, value in first.items()
        if all(record.fingerprint.get(key) == value for record in records)
    }


def _unit(name: str, value: float) -> str:
    """Format a parameter with its unit: seconds, or seconds per byte."""
    return format_duration(value, digits=3) + ("" if name in ("alpha", "launch") else "/B")
