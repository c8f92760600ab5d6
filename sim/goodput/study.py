"""Many lives of one job, and their summary: its goodput, with its spread and its confidence interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringside.sim.goodput import formulas
from ringside.sim.goodput.job import LEAST_S, LongJob
from ringside.sim.goodput.simulate import BADPUT, PRODUCTIVE, live, random_strikes

MOST_FAILURES = 1_000_000
"""Maximum failures of all lives together; more would take minutes."""

_Z99 = 2.5758293035489004
"""99 % of a normal distribution lies within this number of standard deviations."""

QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True, slots=True)
class Goodput:
    """A job's goodput, by formula and by simulation, with a checkpoint every ``interval_s``.

    ``expected`` is `ringside.sim.goodput.formulas.expected_goodput`, ``first_order`` its first order.
    ``simulated`` is the work over the mean wall time of ``trials`` lives, ``low99`` and ``high99`` its
    confidence interval; ``p5``, ``p50`` and ``p95`` are quantiles of single lives. ``spent`` gives shares of
    all time by class, which add up to 1; ``failures`` and ``lost_s`` are means per life, by cause.
    """

    interval_s: float
    expected: float
    first_order: float
    simulated: float
    low99: float
    high99: float
    p5: float
    p50: float
    p95: float
    wall_s: float
    trials: int
    spent: dict[str, float]
    failures: dict[str, float]
    lost_s: dict[str, float]

    @property
    def badput(self) -> dict[str, float]:
        """Shares of all time that were lost, by class."""
        return {name: share for name, share in self.spent.items() if name != PRODUCTIVE}


def study(job: LongJob, interval_s: float, *, trials: int = 100, seed: int = 0) -> Goodput:
    """Simulate ``trials`` lives of the job; the same seed gives the same lives.

    Raise ValueError where the lives, or one of them, would take too long to simulate.
    """
    check_trials(trials, seed)
    wall = formulas.expected_wall(job, interval_s)
    if wall * job.rate * trials > MOST_FAILURES:
        raise ValueError(
            f"{wall * job.rate:.3g} failures in each of {trials} lives, which take {wall:.3g} s on "
            f"average; at most {MOST_FAILURES:,} are simulated: write a shorter interval, less work, "
            "rarer failures or fewer trials"
        )
    lives = [
        live(job, interval_s, random_strikes(job, np.random.default_rng([seed, number])))
        for number in range(trials)
    ]
    walls = np.array([one.wall_s for one in lives])
    mean = float(walls.mean())
    error = within99(trials) * float(walls.std(ddof=1)) / math.sqrt(trials)
    low, middle, high = (float(q) for q in np.quantile(job.work_s / walls, QUANTILES))
    return Goodput(
        interval_s=interval_s,
        expected=job.work_s / wall,
        first_order=formulas.first_order_goodput(job, interval_s),
        simulated=job.work_s / mean,
        low99=job.work_s / (mean + error),
        high99=min(1.0, job.work_s / max(mean - error, job.work_s)),
        p5=low,
        p50=middle,
        p95=high,
        wall_s=mean,
        trials=trials,
        spent={
            name: float(np.mean([one.spent_s[name] for one in lives])) / mean
            for name in (PRODUCTIVE, *BADPUT)
        },
        failures={
            cause.name: float(np.mean([one.failures[cause.name] for one in lives])) for cause in job.causes
        },
        lost_s={
            cause.name: float(np.mean([one.lost_s[cause.name] for one in lives])) for cause in job.causes
        },
    )


def within99(trials: int) -> float:
    """Return the 99 % confidence interval of a mean of ``trials`` lives, in standard errors.

    Student's t of ``trials - 1`` degrees of freedom by its expansion about the normal distribution, 26.7.5 of
    Abramowitz and Stegun's handbook; accurate to a thousandth from 10 lives on.
    """
    z, free = _Z99, trials - 1
    return (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )


def around(job: LongJob, best_s: float, points: int = 9, span: float = 16.0) -> Sequence[float]:
    """Return intervals about the best one, evenly spaced on a logarithmic scale, all possible for the job.

    They end where the expected goodput is a quarter of the best.
    """
    least = max(best_s / span, job.checkpoints.persist_s - job.checkpoints.write_s, LEAST_S)
    most = max(min(best_s * span, job.work_s), least * 1.001)
    first, last = (_nearer(job, end, best_s) for end in (least, most))
    return [float(one) for one in np.geomspace(first, last, points)]


def _nearer(job: LongJob, end_s: float, best_s: float) -> float:
    """Return the interval, or one nearer to the best, with a quarter of the best goodput."""
    worth = formulas.expected_goodput(job, best_s) / 4
    while formulas.expected_goodput(job, end_s) < worth:
        end_s = math.sqrt(end_s * best_s)
    return end_s


def check_trials(trials: int, seed: int) -> None:
    """Refuse too few lives for a spread, too many, and invalid seeds."""
    if not 10 <= trials <= 100_000:
        raise ValueError(f"{trials} trials; write 10 to 100000")
    if seed < 0:
        raise ValueError(f"seed {seed}; write 0 or more")
