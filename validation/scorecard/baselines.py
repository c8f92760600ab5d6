"""Simple rules with less effort, on the same rows as the measured model."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.nccl.device.p2p import KINDS as POINT_TO_POINT
from ringside.sim.libraries.nccl.device.p2p import point_to_point
from ringside.sim.libraries.nccl.figures import steps
from ringside.sim.libraries.nccl.library import LAUNCH_S
from ringside.sim.libraries.nccl.tuner import cost_table
from ringside.validation.nccl.observed import NcclRow

Floats = NDArray[np.float64]

Baseline = Callable[[Sequence[NcclRow], Sequence[NcclRow]], Floats]
"""Predicts the seconds of the second rows from the first; NaN where the rule does not apply."""


def alpha_beta_ring(fitted: Sequence[NcclRow], rows: Sequence[NcclRow]) -> Floats:
    """Fit a ring of messages with a latency and a bandwidth, with equal weights for all rows."""
    seconds = _seconds(fitted)
    slopes = _ring(fitted) / seconds[:, None]
    terms, *_ = np.linalg.lstsq(slopes, np.ones(len(fitted)), rcond=None)
    times: Floats = _ring(rows) @ np.maximum(terms, 0.0)
    return np.where(times > 0, times, np.nan)


def tuner(fitted: Sequence[NcclRow], rows: Sequence[NcclRow]) -> Floats:
    """Return the tuner's estimate of its choice, plus a launch of 2 us; nothing is fitted."""
    return np.array([_believed(row) for row in rows])


def linear_in_log_nodes(fitted: Sequence[NcclRow], rows: Sequence[NcclRow]) -> Floats:
    """Fit a line in the logarithm of the nodes per size; constant with a single node count."""

    def line(row: NcclRow) -> float:
        same = [one for one in fitted if _alike(one, row) and one.record.nbytes == row.record.nbytes]
        same = [one for one in same if one.comm.nodes > 1] or same
        if not same:
            return np.nan
        nodes, seconds = np.log2([one.comm.nodes for one in same]), _seconds(same)
        if len(set(nodes)) == 1:
            return float(seconds.mean())
        time_s = float(np.polyval(np.polyfit(nodes, seconds, 1), np.log2(row.comm.nodes)))
        return time_s if time_s > 0 else np.nan

    return np.array([line(row) for row in rows])


def interpolated(fitted: Sequence[NcclRow], rows: Sequence[NcclRow]) -> Floats:
    """Interpolate over the sizes of runs with equal ranks, log-log; constant outside."""

    def between(row: NcclRow) -> float:
        same = [one for one in fitted if _alike(one, row) and one.comm.ranks == row.comm.ranks]
        return _along(same, row.record.nbytes)

    return np.array([between(row) for row in rows])


def pooled_curve(fitted: Sequence[NcclRow], rows: Sequence[NcclRow]) -> Floats:
    """Interpolate one curve of time over size through all rows of the collective."""
    return np.array([_along([one for one in fitted if _alike(one, row)], row.record.nbytes) for row in rows])


BASELINES: dict[str, Baseline] = {
    "alpha-beta ring": alpha_beta_ring,
    "tuner + 2 us": tuner,
    "linear in log2 N": linear_in_log_nodes,
    "log-log interpolation": interpolated,
    "pooled curve": pooled_curve,
}


def _alike(one: NcclRow, other: NcclRow) -> bool:
    """Return whether two rows are of one collective, pinned to one algorithm."""
    return (one.record.collective, one.record.algorithm) == (other.record.collective, other.record.algorithm)


def _along(rows: Sequence[NcclRow], nbytes: int) -> float:
    """Interpolate the median times over the sizes, log-log."""
    if not rows:
        return np.nan
    at: dict[int, list[float]] = {}
    for row in rows:
        at.setdefault(row.record.nbytes, []).append(np.log(row.record.time_s))
    sizes = sorted(at)
    middles = [float(np.median(at[size])) for size in sizes]
    return float(np.exp(np.interp(np.log(nbytes), np.log(sizes), middles)))


def _ring(rows: Sequence[NcclRow]) -> Floats:
    """Return the factors of a message's latency, and of a byte's time."""
    hops = np.array([steps(row.record.collective, row.comm.ranks) for row in rows], dtype=np.float64)
    nbytes = np.array([row.record.nbytes / row.comm.ranks for row in rows])
    return np.stack([hops, hops * nbytes], axis=1)


def _seconds(rows: Sequence[NcclRow]) -> Floats:
    return np.array([row.record.time_s for row in rows])


def _believed(row: NcclRow) -> float:
    record = row.record
    if record.collective in POINT_TO_POINT:
        return point_to_point(row.comm, record.collective, record.nbytes).time_us * 1e-6 + LAUNCH_S
    table = cost_table(row.comm, record.collective, record.dtype or "float32", record.redop or "sum")
    return float(table.times_us(record.nbytes).min()) * 1e-6 + LAUNCH_S
