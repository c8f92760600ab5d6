"""A calibrated machine: how long NCCL's pairs take on it, and between which times four of five lie."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.libraries.nccl.measured.correction import Correction
from sim.libraries.nccl.measured.facts import Facts
from sim.libraries.nccl.measured.forms import kernel_us, time_us
from sim.libraries.nccl.measured.parameters import Values
from sim.libraries.nccl.measured.work import Task, Work, work_of

Floats = NDArray[np.float64]

EIGHTY = 1.2816
"""Standard deviations to either side that hold four of five."""

PER_DOUBLING = 0.15
"""What a doubling of nodes beyond those measured adds in log time, over how many such counts there are."""

SITE_LATENCY, SITE_BANDWIDTH = 0.35, 0.07
"""By how much two sites of one kind of machine differ in latency and in bandwidth, in log time."""

_STEP = 1e-4


@dataclass(frozen=True, eq=False, slots=True)
class Answer:
    """Seconds of each task, and the ends within which four of five lie."""

    time_s: Floats
    lo_s: Floats
    hi_s: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Anchor:
    """Rows of a user's own site: what each leaves of the prediction in log time, and of what it consists."""

    latency: Floats
    bandwidth: Floats
    left: Floats
    sigma: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """What was fitted to one kind of machine.

    ``covariance`` is of the logarithms of ``values``, in their order. ``noise`` is the log spread that fit
    and correction leave, ``nodes`` are the counts that were measured. ``pooled`` says that rows of
    several sites were taken together, so that another site is as far off as they are from each other.
    """

    values: Mapping[str, float]
    covariance: Floats
    correction: Correction
    facts: Facts
    noise: float
    nodes: tuple[int, ...]
    pooled: bool
    anchor: Anchor | None = None

    def predict(self, tasks: Iterable[Task]) -> Answer:
        """How long the tasks take, each by its own pair."""
        work = work_of(tasks)
        mean, sigma = self.log_us(work)
        middle = np.exp(mean) * 1e-6
        factor = np.exp(EIGHTY * sigma)
        return Answer(middle, middle / factor, middle * factor)

    def log_us(self, work: Work) -> tuple[Floats, Floats]:
        """Log of microseconds and its standard deviation."""
        bare, slopes = log_form(work, self.values)
        corrected, uncertain = self.correction.predict(work)
        beyond = np.maximum(np.log2(work.nodes / max(self.nodes)), 0.0)
        beyond = beyond / max(sum(count > 1 for count in self.nodes), 1)
        # near its rows the correction takes up what the parameters leave open, so these are not added
        open_still = np.maximum(uncertain**2, np.sum(slopes * (self.covariance @ slopes), axis=0))
        variance = open_still + self.noise**2 + (PER_DOUBLING * beyond) ** 2
        mean = bare + corrected
        if self.pooled or self.anchor:
            latency, bandwidth = self.parts(work)
            site = (SITE_LATENCY * latency) ** 2 + (SITE_BANDWIDTH * bandwidth) ** 2
            if self.anchor:
                shift, known = _shift(self.anchor, latency, bandwidth)
                mean, site = mean + shift, np.maximum(site - known, 0.0)
            variance = variance + site
        return mean, np.sqrt(variance)

    def doubt(self, one: Task, other: Task) -> float:
        """By which fraction the ratio of two tasks' times on one site may be off, four times of five.

        What both have in common, a site slower than others for one, is no doubt about which is quicker.
        """
        work = work_of([one, other])
        _, slopes = log_form(work, self.values)
        _, uncertain = self.correction.predict(work)
        apart = slopes[:, 0] - slopes[:, 1]
        variance = float(apart @ self.covariance @ apart + np.sum(uncertain**2)) + 2 * self.noise**2
        if self.pooled:
            latency, bandwidth = (float(part[0] - part[1]) for part in self.parts(work))
            variance += (SITE_LATENCY * latency) ** 2 + (SITE_BANDWIDTH * bandwidth) ** 2
        return float(np.expm1(EIGHTY * np.sqrt(variance)))

    def parts(self, work: Work) -> tuple[Floats, Floats]:
        """Which part of each time is latency, and which bandwidth."""
        empty = replace(work, message=np.zeros(len(work)), nbytes=np.zeros(len(work)))
        latency = np.clip(kernel_us(empty, self.values) / time_us(work, self.values), 0.0, 1.0)
        return latency, 1 - latency

    def anchored(self, tasks: Sequence[Task], seconds: Sequence[float]) -> "Measured":
        """The same scaled to a site by rows that were measured there."""
        work = work_of(tasks)
        bare, _ = log_form(work, self.values)
        corrected, uncertain = self.correction.predict(work)
        left = np.log(np.asarray(seconds) * 1e6) - bare - corrected
        sigma = np.sqrt(uncertain**2 + self.noise**2)
        return replace(self, anchor=Anchor(*self.parts(work), left, sigma))


def log_form(work: Work, values: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Log microseconds by the forms alone, and slopes in the logarithm of each value."""
    trials = 1.0 + _STEP * np.eye(len(values) + 1, len(values), k=-1)
    columns: Values = {
        name: trials[:, place : place + 1] * value for place, (name, value) in enumerate(values.items())
    }
    times = np.log(time_us(work, columns))
    return times[0], (times[1:] - times[0]) / np.log1p(_STEP)


def _shift(anchor: Anchor, latency: Floats, bandwidth: Floats) -> tuple[Floats, Floats]:
    """What the anchor's rows say of others: a shift of log time, and the variance that it takes away."""

    def alike(a: tuple[Floats, Floats], b: tuple[Floats, Floats]) -> Floats:
        found: Floats = SITE_LATENCY**2 * np.outer(a[0], b[0]) + SITE_BANDWIDTH**2 * np.outer(a[1], b[1])
        return found

    rows, asked = (anchor.latency, anchor.bandwidth), (latency, bandwidth)
    between = alike(rows, rows) + np.diag(anchor.sigma**2)
    mine = alike(asked, rows)
    weights = np.linalg.solve(between, mine.T)
    return anchor.left @ weights, np.sum(mine * weights.T, axis=1)
