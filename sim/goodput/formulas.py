"""The goodput of a job under checkpoints and failures, by formula.

Throughout, failures are random and independent (a Poisson process), with a mean time M between them, and may
hit checkpoints and restarts too; work between two checkpoints takes tau, a checkpoint w, a restart R.
"""

import math

from ringside.sim.goodput.job import LEAST_S, LongJob

_CHEAP = 1e-9
"""The share of M that a checkpoint takes, below which Daly's interval is exact to double precision."""

_STEPS = 60
"""Bisection steps that exhaust a double."""


def young(write_s: float, mtbf_s: float) -> float:
    """Return the interval sqrt(2 w M).

    J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974.
    """
    return math.sqrt(2 * write_s * mtbf_s)


def daly(write_s: float, mtbf_s: float) -> float:
    """Return sqrt(2wM) [1 + sqrt(w/2M)/3 + (w/2M)/9] - w, or M where w is 2 M or more.

    J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future
    Generation Computer Systems 22(3), 2006, equation 37.
    """
    if write_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = write_s / (2 * mtbf_s)
    return young(write_s, mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write_s


def best_interval(job: LongJob) -> float:
    """Return the interval with the greatest `expected_goodput`: where 1 - e^(-(tau + w)/M) = tau/M.

    That is the zero of the derivative of Daly's expectation; it depends on neither the restart nor the age at
    which a checkpoint is usable. It is infinite without failures.
    """
    write, mtbf = job.checkpoints.write_s, job.mtbf_s
    if math.isinf(mtbf):
        return math.inf
    best = daly(write, mtbf)
    if write > _CHEAP * mtbf:
        low, high = 0.0, mtbf
        for _ in range(_STEPS):
            best = (low + high) / 2
            falls = -math.expm1(-(best + write) / mtbf) <= best / mtbf
            low, high = (low, best) if falls else (best, high)
    return max(best, job.checkpoints.persist_s - write, LEAST_S)


def expected_wall(job: LongJob, interval_s: float) -> float:
    """Return the job's mean time, in seconds, from its first start; infinite if it never ends.

    Daly's exact expectation of 2006, M e^(R/M) (e^((tau + w)/M) - 1) per segment, with e^(R/M) as the mean
    over causes, a first start-up that reads no checkpoint, and a last segment as long as the remainder. An
    asynchronous checkpoint is usable later by its persist time, which lengthens a restart by the same time;
    this holds in the long run. No node is ever missing.
    """
    job.check_interval(interval_s)
    write, persist, rate = job.checkpoints.write_s, job.checkpoints.persist_s, job.rate
    full = math.floor(job.work_s / interval_s * (1 + 1e-12))
    left = max(job.work_s - full * interval_s, 0.0)
    try:
        segments = full * _grown(interval_s + write, rate)
        if left > 1e-9 * job.work_s:
            segments += _grown(left + write, rate)
        return _again(job) * (_first(job) + segments) + persist
    except (OverflowError, ZeroDivisionError):
        return math.inf


def expected_goodput(job: LongJob, interval_s: float) -> float:
    """Return the share of productive time, by `expected_wall`; between 0 and 1."""
    return job.work_s / expected_wall(job, interval_s)


def first_order_goodput(job: LongJob, interval_s: float) -> float:
    """Return 1 - w/tau - (tau/2 + R)/M, accurate if all three are small; never below 0.

    Young's accounting, with the restart beside the lost work.
    """
    job.check_interval(interval_s)
    lost = interval_s / 2 + job.restart_s + job.checkpoints.persist_s
    return max(0.0, 1 - job.checkpoints.write_s / interval_s - lost * job.rate)


def _again(job: LongJob) -> float:
    """Return the factor by which restarts lengthen the work: e^(R/M), the mean over causes."""
    if not job.rate:
        return 1.0
    late = job.checkpoints.persist_s
    pairs = zip(job.shares, job.causes, strict=True)
    return 1 / sum(p * math.exp(-job.rate * (job.restart.whole_s(c) + late)) for p, c in pairs)


def _first(job: LongJob) -> float:
    """Return what the first start-up, of length L, adds before restarts lengthen it: M (1 - e^(-L/M)).

    For a start and a segment of length s together take M (1 - e^(-(L+s)/M)) e^((R+s)/M).
    """
    start = job.restart.start_s
    return -math.expm1(-job.rate * start) / job.rate if job.rate else start


def _grown(seconds: float, rate: float) -> float:
    """Return the mean time to complete ``seconds`` without a failure: (e^(rate s) - 1) / rate."""
    return math.expm1(rate * seconds) / rate if rate else seconds
