"""A calibrated machine: times of NCCL's pairs on it, with 80 % intervals.

    time = (kernel^8 + host^8)^(1/8) * exp(correction)

`message_times` counts the *kernel*: each hop's latency, gap and bandwidth, for the chunks and channels that
NCCL uses. The *host* is the time of one process to launch on all the GPUs that it drives. The *correction* is
a Gaussian process in log time over message size, channels and GPUs per node. Two tasks correlate if the same
pair runs them, both inside one node or both across several, with similar messages, channels and GPUs: fewer
GPUs use other links. Its mean tends to zero away from the measurements. `ringside.validation.nccl` fits the
parameters.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.gaussian import EIGHTY, widened
from ringside.sim.libraries.nccl.communicator import SiteFacts
from ringside.sim.libraries.nccl.message_times import (
    PAIRS,
    SHARPNESS,
    Task,
    TaskArrays,
    Values,
    kernel_us,
    time_us,
    work_of,
)
from ringside.sim.libraries.nccl.send_times import SENDS

Floats = NDArray[np.float64]

PER_DOUBLING, PER_DOUBLING_OF_BYTES, PER_DOUBLING_OF_BOTH = 0.2, 0.06, 0.2
"""Deviations in log time of a step to twice the measured nodes; steps are treated as independent.

Of the part of a time that latencies take, which more hops add up to, and of the bytes' part: a node's cards
carry about as many, however many nodes there are. The third applies where latency and bytes both count, in
full where each takes half: the protocol and the overlap of the two are least certain there.
"""

DEVIATIONS = 5
SITE_LATENCY, SITE_INSIDE, SITE_BETWEEN, SITE_LOW, SITE_HOST = 0.09, 0.025, 0.15, 0.2, 0.15
"""Deviations between most sites of one kind of machine in log time; a few are farther off.

Of latency, of Simple's bandwidth inside and between nodes, of the bandwidth of LL and LL128, of the host.
Latency, inside and low were chosen by the share of the scorecard's rows of other sites in their intervals,
as those of sends below.
"""

SENDS_LATENCY, SENDS_INSIDE = 0.15, 0.06
"""The same of sends and receives: latency, and bandwidth inside a node."""

SITE_ELSE, SIZE_OCTAVES = 0.7, 4.0
"""Further deviation of a site's own row, over that which all its rows share, and its correlation length.

The length is along the sizes of the row's pair.
"""

SHARED = 0.4
"""Share of the variance in latency that is common to all pairs of a site."""

ALONE = 0.65
"""Part of its deviation within which a row's interval lies where latency or bytes alone take the time.

The deviations of parameters and pooled sites are too large there. Excepted are bytes between nodes, nodes
beyond the measured ones, and sends. The part and the exceptions were chosen by the scorecard's rows of other
sites, as those above.
"""

AMPLITUDE = 0.4
"""Largest standard deviation of residuals expected of the form, in log time."""

LEAST_AMPLITUDE = 0.1
"""Minimum uncertainty away from the rows, even without residuals at them."""

OCTAVES = 1.6
"""Correlation length over messages, over channels and over GPUs per node."""

NEAR = 0.5
"""Correlation with a fitted row from which on a task counts as measured."""

LOW = ("ll", "ll128")
"""The protocols of low latency, whose bandwidth releases of NCCL and machines change most."""

LEAST_MESSAGE = 4.0
"""Bytes below which all messages are equivalent: a word of LL beside its flag."""

_STEP = 1e-4
_FAR = 1e3


Place = tuple[NDArray[np.int64], Floats]
"""Tasks as the correction sees them: `Correction.way` and `Correction.where`."""


@dataclass(frozen=True, eq=False)
class Correction:
    """Fitted rows: their places, residuals and uncertainties.

    ``way`` identifies pair and scale, ``where`` has a row for each base-2 logarithm: of message, channels and
    GPUs per node. ``left`` and ``sigma`` are natural logarithms.
    """

    way: NDArray[np.int64]
    where: Floats
    left: Floats
    sigma: Floats

    def predict(self, work: TaskArrays) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of log time, one per task."""
        mine = _alike(place_of(work), self.place)
        weights = self._inverse @ mine.T
        mean: Floats = self.left @ weights
        variance: Floats = AMPLITUDE**2 - np.sum(mine * weights.T, axis=1)
        return mean, self._scale * np.sqrt(np.maximum(variance, 0.0))

    def covariance(self, a: Place, b: Place) -> Floats:
        """Return what the rows leave open of log times, each of ``a`` with each of ``b``."""
        known = _alike(a, self.place) @ self._inverse @ _alike(self.place, b)
        covariance: Floats = self._scale**2 * (_alike(a, b) - known)
        return covariance

    @property
    def place(self) -> Place:
        """The places of the rows."""
        return self.way, self.where

    @cached_property
    def _scale(self) -> float:
        if not len(self.left):
            return 1.0
        return float(np.clip(np.sqrt(np.mean(self.left**2)), LEAST_AMPLITUDE, AMPLITUDE)) / AMPLITUDE

    @cached_property
    def _inverse(self) -> Floats:
        alike = _alike(self.place, self.place)
        inverse: Floats = np.linalg.inv(alike + np.diag(self.sigma**2)).astype(np.float64)
        return inverse


def corrected(work: TaskArrays, left: Floats, sigma: Floats) -> Correction:
    """Return the correction for the form's residuals ``left``; outliers count less."""
    place = place_of(work)
    return Correction(*place, left, widened(_alike(place, place), left, sigma))


def place_of(work: TaskArrays) -> Place:
    """Return where the correction sees each task."""
    channels = work.channels * np.maximum(work.peers_inside + work.peers_between, 1.0)
    where = np.log2([np.maximum(work.message, LEAST_MESSAGE), channels, work.gpus])
    return 2 * work.pair + work.one, where


def _alike(a: Place, b: Place) -> Floats:
    """Return Matern's covariance of 3/2, which allows a fabric's kinks better than a smoother one."""
    same = a[0][:, None] == b[0][None, :]
    octaves = np.linalg.norm(a[1][:, :, None] - b[1][:, None, :], axis=0)
    apart = octaves * (np.sqrt(3) / OCTAVES)
    covariance: Floats = AMPLITUDE**2 * same * (1 + apart) * np.exp(-apart)
    return covariance


@dataclass(frozen=True, eq=False, slots=True)
class TaskTimes:
    """Seconds of each task, and the ends of its 80 % interval."""

    time_s: Floats
    lo_s: Floats
    hi_s: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Traits:
    """Terms of a task's time in which sites differ.

    ``pair`` is the place in `PAIRS`, ``size`` the base-2 logarithm of the bytes. ``shares`` has a column for
    each deviation between sites, first that of latency: its share of the time, times the deviation.
    """

    pair: NDArray[np.int64]
    size: Floats
    shares: Floats


@dataclass(frozen=True, eq=False, slots=True)
class SiteAnchor:
    """Rows of a user's own site: each residual of the prediction in log time, and its noise.

    ``place`` is where the correction sees them. ``slopes`` are those of the rows' log times in the logarithm
    of each parameter, parameters x rows.
    """

    traits: Traits
    place: Place
    slopes: Floats
    left: Floats
    sigma: Floats


@dataclass(frozen=True, eq=False, slots=True)
class MeasuredModel:
    """The fit to one kind of machine.

    ``covariance`` is of the logarithms of ``values``, in their order. ``noise`` is the log spread after fit
    and correction, ``nodes`` are the measured counts. ``pooled`` says that rows of several sites were
    combined, so another site deviates as much as they do from each other.
    """

    values: Mapping[str, float]
    covariance: Floats
    correction: Correction
    facts: SiteFacts
    noise: float
    nodes: tuple[int, ...]
    pooled: bool
    anchor: SiteAnchor | None = None

    def predict(self, tasks: Iterable[Task]) -> TaskTimes:
        """Return the times of the tasks, each for its own pair."""
        mean, _, half = self.log_us(work_of(tasks))
        middle, factor = np.exp(mean) * 1e-6, np.exp(half)
        return TaskTimes(middle, middle / factor, middle * factor)

    def log_us(self, work: TaskArrays) -> tuple[Floats, Floats, Floats]:
        """Return the log of microseconds, its standard deviation, and half of its 80 % interval."""
        bare, slopes = log_form(work, self.values)
        corrected, uncertain = self.correction.predict(work)
        mean = bare + corrected
        latency = latency_share(work, self.values)
        doublings = np.maximum(np.log2(work.nodes / max(self.nodes)), 0.0)
        of_growth = doublings * _of_doubling(latency)
        if self.anchor:
            shift, left = self._shift(self.anchor, work, slopes)
            mean += shift
        else:
            # near its rows the correction absorbs the parameters' uncertainties, so these are not added
            left = np.maximum(uncertain**2, np.sum(slopes * (self.covariance @ slopes), axis=0))
            if self.pooled:
                traits = self.traits(work)
                left += np.diag(_of_site(traits, traits))
        others = self.noise**2 + left
        part = _within(work, latency) if self.pooled else 1.0
        half = EIGHTY * np.sqrt(of_growth + part**2 * others)
        return mean, np.sqrt(of_growth + others), half

    def has_near_rows(self, work: TaskArrays) -> NDArray[np.bool_]:
        """Return which tasks were measured or nearly: with a similar place, on as many nodes."""
        rows = self.correction
        if not len(rows.way):
            return np.zeros(len(work), bool)
        alike = _alike(place_of(work), rows.place).max(axis=1)
        near: NDArray[np.bool_] = (alike >= NEAR * AMPLITUDE**2) & (work.nodes <= max(self.nodes))
        return near

    def doubt(self, one: Task, other: Task) -> float:
        """Return the relative uncertainty of the ratio of two tasks' times on one site, as an 80 % interval.

        Common deviations, of a slow site for example, do not affect which one is faster.
        """
        work = work_of([one, other])
        _, slopes = log_form(work, self.values)
        _, uncertain = self.correction.predict(work)
        apart = slopes[:, 0] - slopes[:, 1]
        variance = float(apart @ self.covariance @ apart + np.sum(uncertain**2)) + 2 * self.noise**2
        if self.pooled:
            first, second = site_deviations(work, self.values)
            variance += float(np.sum((first - second) ** 2))
        return float(np.expm1(EIGHTY * np.sqrt(variance)))

    def traits(self, work: TaskArrays) -> Traits:
        """Return the terms of each task's time."""
        size = np.log2(np.maximum(work.nbytes, 1.0))
        return Traits(work.pair, size, site_deviations(work, self.values))

    def anchored(self, tasks: Sequence[Task], seconds: Sequence[float]) -> "MeasuredModel":
        """Return the model scaled to a site by rows that were measured there."""
        work = work_of(tasks)
        bare, slopes = log_form(work, self.values)
        corrected, _ = self.correction.predict(work)
        left = np.log(np.asarray(seconds) * 1e6) - bare - corrected
        noise = np.full(len(work), self.noise)
        return replace(self, anchor=SiteAnchor(self.traits(work), place_of(work), slopes, left, noise))

    def _shift(self, anchor: SiteAnchor, work: TaskArrays, slopes: Floats) -> tuple[Floats, Floats]:
        """Return the anchor's effect on tasks: a shift of log time, and the remaining variance.

        A row deviates by its site, and by what the fit left open of the parameters and of the correction,
        which other tasks share.
        """
        own = anchor.traits, anchor.place, anchor.slopes
        tasks = self.traits(work), place_of(work), slopes
        between = self._deviations(own, own) + np.diag(anchor.sigma**2)
        mine = self._deviations(tasks, own)
        weights = np.linalg.solve(between, mine.T)
        left = np.diag(self._deviations(tasks, tasks)) - np.sum(mine * weights.T, axis=1)
        return anchor.left @ weights, np.maximum(left, 0.0)

    def _deviations(self, a: "_Deviating", b: "_Deviating") -> Floats:
        """Return the covariance of one site's log times, each of ``a`` with each of ``b``."""
        (of_a, at_a, slopes_a), (of_b, at_b, slopes_b) = a, b
        of_fit = slopes_a.T @ self.covariance @ slopes_b + self.correction.covariance(at_a, at_b)
        covariance: Floats = _of_site(of_a, of_b) + _nearby(of_a, of_b) + of_fit
        return covariance


_Deviating = tuple[Traits, Place, Floats]


def site_deviations(work: TaskArrays, values: Mapping[str, float]) -> Floats:
    """Return by how much sites differ in each time, tasks x deviations."""
    kernel, whole = kernel_us(work, values), time_us(work, values)
    latency = latency_share(work, values)
    steady = whole - values["torch_us"] * work.launch_torch
    not_host = (kernel / steady) ** SHARPNESS * steady / whole
    bandwidth = not_host * (1 - latency)
    low = np.isin(work.pair, [place for place, (_, protocol) in enumerate(PAIRS) if protocol in LOW])
    sends = work.pair == PAIRS.index(SENDS)
    return np.column_stack(
        [
            np.where(sends, SENDS_LATENCY, SITE_LATENCY) * not_host * latency,
            np.where(sends, SENDS_INSIDE, SITE_INSIDE) * bandwidth * (work.one & ~low),
            SITE_BETWEEN * bandwidth * (~work.one & ~low),
            SITE_LOW * bandwidth * low,
            SITE_HOST * (1 - not_host),
        ]
    )


def _within(work: TaskArrays, latency: Floats) -> Floats:
    """Return `ALONE`, or the part nearer to 1 the more of latency and bytes both count."""
    alone = (2 * latency - 1) ** 2
    of_fabric = ~work.one & (latency < 0.5)
    of_sends = work.pair == PAIRS.index(SENDS)
    part: Floats = np.where(of_fabric | of_sends, 1.0, 1 - (1 - ALONE) * alone)
    return part


def _of_doubling(latency: Floats) -> Floats:
    """Return the variance of log time that each doubling of nodes adds, by the share of latency."""
    either = PER_DOUBLING * latency + PER_DOUBLING_OF_BYTES * (1 - latency)
    both = PER_DOUBLING_OF_BOTH * 4 * latency * (1 - latency)
    variance: Floats = either**2 + both**2
    return variance


def latency_share(work: TaskArrays, values: Mapping[str, float]) -> Floats:
    """Return the part of each kernel's time that remains without a byte to carry."""
    nothing = np.zeros(len(work))
    empty = replace(work, message=nothing, nbytes=nothing, filling=nothing)
    share: Floats = np.clip(kernel_us(empty, values) / kernel_us(work, values), 0.0, 1.0)
    return share


def log_form(
    work: TaskArrays, values: Mapping[str, float], names: Sequence[str] | None = None
) -> tuple[Floats, Floats]:
    """Return log microseconds by the forms alone, and slopes in the logarithm of each value, or some."""
    names = tuple(values) if names is None else names
    times = np.log(time_us(work, _trials(values, names, 1.0 + _STEP)))
    return times[0], (times[1:] - times[0]) / np.log1p(_STEP)


def influential_parameters(work: TaskArrays, values: Mapping[str, float]) -> list[str]:
    """Return the parameters that affect any of the tasks' times, also far from their values."""
    times = [time_us(work, _trials(values, tuple(values), factor)) for factor in (_FAR, 1 / _FAR)]
    moved = np.any([np.any(trials[1:] != trials[0], axis=1) for trials in times], axis=0)
    return [name for name, moves in zip(values, moved, strict=True) if moves]


def _trials(values: Mapping[str, float], names: Sequence[str], factor: float) -> Values:
    """Return the values, followed by a trial for each named one in which it is multiplied."""
    trials: dict[str, float | Floats] = dict(values)
    for place, name in enumerate(names):
        column = np.ones((len(names) + 1, 1))
        column[place + 1] = factor
        trials[name] = column * values[name]
    return trials


def _of_site(a: Traits, b: Traits) -> Floats:
    """Return the covariance of one site's deviations in log time, each of ``a`` with each of ``b``."""
    same = a.pair[:, None] == b.pair[None, :]
    latency = np.where(same, 1.0, SHARED) * np.outer(a.shares[:, 0], b.shares[:, 0])
    covariance: Floats = latency + a.shares[:, 1:] @ b.shares[:, 1:].T
    return covariance


def _nearby(a: Traits, b: Traits) -> Floats:
    """Return the covariance of further deviations of a site, between near sizes of one pair."""
    same = a.pair[:, None] == b.pair[None, :]
    apart = (a.size[:, None] - b.size[None, :]) / SIZE_OCTAVES
    shared = np.outer(np.linalg.norm(a.shares, axis=1), np.linalg.norm(b.shares, axis=1))
    covariance: Floats = SITE_ELSE**2 * shared * same * np.exp(-0.5 * apart**2)
    return covariance
