"""A calibrated machine: how long NCCL's pairs take on it, and between which times four of five lie.

Facts of its graphs, values of the forms' parameters, and what the form leaves: a Gaussian process in log time
over message size and channels. Two tasks are alike that run by the same pair, both inside one node or both
across several, with messages and channels of about the same number. Its mean tends to zero away from what was
measured.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.gaussian import EIGHTY, widened
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.graph.graph import Graph, PathClass
from ringside.sim.libraries.nccl.measured.messages import (
    PARAMETERS,
    SHARPNESS,
    Task,
    Values,
    Work,
    kernel_us,
    time_us,
    work_of,
)

Floats = NDArray[np.float64]

PER_DOUBLING = 0.15
"""Deviation in log time of a step to twice the nodes that were measured; steps are taken as independent."""

SITE_LATENCY, SITE_BANDWIDTH = 0.35, 0.07
"""By how much two sites of one kind of machine differ in latency and in bandwidth, in log time."""

SITE_ELSE, SIZE_OCTAVES = 0.15, 4.0
"""By how much else a site's own row is off, and how far along the sizes of its pair that reaches."""

SHARED = 0.4
"""Which part of the variance in latency all pairs of a site have in common."""

AMPLITUDE = 0.4
"""Standard deviation of log time that the form is expected to leave, at most."""

LEAST_AMPLITUDE = 0.1
"""What is doubted away from the rows even of a form that leaves nothing at them."""

OCTAVES = 1.6
"""How far alike reaches, over messages and over channels."""

LEAST_MESSAGE = 4.0
"""Bytes below which all messages are alike: a word of LL beside its flag."""

_STEP = 1e-4
_FAR = 1e3


@dataclass(frozen=True, slots=True)
class Facts:
    """What is so between nodes.

    ``ll128`` says whether LL128 is used where NCCL's rules hold it safe, ``channels`` how many channels rings
    and trees have after the connect step, ``None`` where that is as the machine's preset has it.
    """

    ll128: bool = True
    channels: int | None = None

    def __post_init__(self) -> None:
        if self.channels is not None and not 1 <= self.channels <= 64:
            raise ValueError(f"channels is {self.channels}; write 1 to 64")

    def on(self, comm: Communicator) -> Communicator:
        """The communicator as the site has it; one node's is as it was."""
        if comm.nodes == 1:
            return comm
        graphs, settings = comm.graphs, comm.settings
        if not self.ll128:
            graphs = replace(graphs, ring=_without_order(graphs.ring), tree=_without_order(graphs.tree))
        if self.channels is not None:
            settings = replace(settings, min_ctas=self.channels, max_ctas=self.channels)
        return replace(comm, graphs=graphs, settings=settings)


def _without_order(graph: Graph) -> Graph:
    """The same graph over a path that breaks the order of LL128's stores."""
    return replace(graph, type_inter=max(graph.type_inter, PathClass.PHB))


@dataclass(frozen=True, eq=False)
class Correction:
    """Rows that were fitted: where they lie, what the form left of them, how sure each was.

    ``way`` tells pair and scale apart, ``message`` and ``channels`` are base-2 logarithms, ``left`` and
    ``sigma`` natural ones.
    """

    way: NDArray[np.int64]
    message: Floats
    channels: Floats
    left: Floats
    sigma: Floats

    def predict(self, work: Work) -> tuple[Floats, Floats]:
        """Mean and standard deviation of log time, a figure a task."""
        if not len(self.way):
            return np.zeros(len(work)), np.full(len(work), AMPLITUDE)
        found = float(np.clip(np.sqrt(np.mean(self.left**2)), LEAST_AMPLITUDE, AMPLITUDE)) / AMPLITUDE
        mine = _alike(_place(work), (self.way, self.message, self.channels))
        weights = self._inverse @ mine.T
        mean: Floats = self.left @ weights
        variance: Floats = AMPLITUDE**2 - np.sum(mine * weights.T, axis=1)
        return mean, found * np.sqrt(np.maximum(variance, 0.0))

    @cached_property
    def _inverse(self) -> Floats:
        place = self.way, self.message, self.channels
        found: Floats = np.linalg.inv(_alike(place, place) + np.diag(self.sigma**2)).astype(np.float64)
        return found


def corrected(work: Work, left: Floats, sigma: Floats) -> Correction:
    """The correction for what the form ``left`` of each row; rows far off the others count less."""
    place = _place(work)
    return Correction(*place, left, widened(_alike(place, place), left, sigma))


Place = tuple[NDArray[np.int64], Floats, Floats]


def _place(work: Work) -> Place:
    return 2 * work.pair + work.one, np.log2(np.maximum(work.message, LEAST_MESSAGE)), np.log2(work.channels)


def _alike(a: Place, b: Place) -> Floats:
    """Matern's covariance of 3/2, which holds a fabric's kinks for less strange than a smoother one would."""
    same = a[0][:, None] == b[0][None, :]
    apart = np.hypot(a[1][:, None] - b[1][None, :], a[2][:, None] - b[2][None, :]) * (np.sqrt(3) / OCTAVES)
    found: Floats = AMPLITUDE**2 * same * (1 + apart) * np.exp(-apart)
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Answer:
    """Seconds of each task, and the ends within which four of five lie."""

    time_s: Floats
    lo_s: Floats
    hi_s: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Traits:
    """Of what tasks' times consist, as far as sites differ in it.

    ``pair`` is the place in `PAIRS`, ``size`` the base-2 logarithm of the bytes, ``latency`` and
    ``bandwidth`` are parts of the time.
    """

    pair: NDArray[np.int64]
    size: Floats
    latency: Floats
    bandwidth: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Anchor:
    """Rows of a user's own site: what each leaves of the prediction in log time, and how sure that is."""

    traits: Traits
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
        doublings = np.maximum(np.log2(work.nodes / max(self.nodes)), 0.0)
        # near its rows the correction takes up what the parameters leave open, so these are not added
        open_still = np.maximum(uncertain**2, np.sum(slopes * (self.covariance @ slopes), axis=0))
        variance = open_still + self.noise**2 + PER_DOUBLING**2 * doublings
        mean = bare + corrected
        if self.pooled or self.anchor:
            traits = self.traits(work)
            if self.anchor:
                shift, site = _shift(self.anchor, traits)
                mean = mean + shift
            else:
                site = np.diag(_of_site(traits, traits))
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
            traits = self.traits(work)
            latency, bandwidth = (float(part[0] - part[1]) for part in (traits.latency, traits.bandwidth))
            variance += (SITE_LATENCY * latency) ** 2 + (SITE_BANDWIDTH * bandwidth) ** 2
        return float(np.expm1(EIGHTY * np.sqrt(variance)))

    def traits(self, work: Work) -> Traits:
        """Of what each task's time consists."""
        size = np.log2(np.maximum(work.nbytes, 1.0))
        return Traits(work.pair, size, *latency_and_bandwidth(work, self.values))

    def anchored(self, tasks: Sequence[Task], seconds: Sequence[float]) -> "Measured":
        """The same scaled to a site by rows that were measured there."""
        work = work_of(tasks)
        bare, _ = log_form(work, self.values)
        corrected, uncertain = self.correction.predict(work)
        left = np.log(np.asarray(seconds) * 1e6) - bare - corrected
        sigma = np.sqrt(uncertain**2 + self.noise**2)
        return replace(self, anchor=Anchor(self.traits(work), left, sigma))


def latency_and_bandwidth(work: Work, values: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Which part of each time is latency, and which bandwidth."""
    kernel = kernel_us(work, values)
    empty = replace(work, message=np.zeros(len(work)), nbytes=np.zeros(len(work)))
    latency = np.clip(kernel_us(empty, values) / kernel, 0.0, 1.0)
    not_host = (kernel / time_us(work, values)) ** SHARPNESS
    return not_host * latency, not_host * (1 - latency)


def log_form(
    work: Work, values: Mapping[str, float], names: Sequence[str] = PARAMETERS
) -> tuple[Floats, Floats]:
    """Log microseconds by the forms alone, and slopes in the logarithm of each value named."""
    times = np.log(time_us(work, _trials(values, names, 1.0 + _STEP)))
    return times[0], (times[1:] - times[0]) / np.log1p(_STEP)


def asked_by(work: Work, values: Mapping[str, float]) -> list[str]:
    """The parameters that the times of any of the tasks depend on, beyond whichever kink."""
    times = [time_us(work, _trials(values, PARAMETERS, factor)) for factor in (_FAR, 1 / _FAR)]
    moved = np.any([np.any(found[1:] != found[0], axis=1) for found in times], axis=0)
    return [name for name, asked in zip(PARAMETERS, moved, strict=True) if asked]


def _trials(values: Mapping[str, float], names: Sequence[str], factor: float) -> Values:
    """The values as they are, then a trial for each one named in which that is multiplied."""
    found: dict[str, float | Floats] = dict(values)
    for place, name in enumerate(names):
        column = np.ones((len(names) + 1, 1))
        column[place + 1] = factor
        found[name] = column * values[name]
    return found


def _of_site(a: Traits, b: Traits) -> Floats:
    """Covariance of what one site adds to the log times of tasks: each of one beside each of the other."""
    same = a.pair[:, None] == b.pair[None, :]
    latency = SITE_LATENCY**2 * np.where(same, 1.0, SHARED) * np.outer(a.latency, b.latency)
    found: Floats = latency + SITE_BANDWIDTH**2 * np.outer(a.bandwidth, b.bandwidth)
    return found


def _nearby(a: Traits, b: Traits) -> Floats:
    """The same of what else a site adds, to sizes near each other of one pair."""
    same = a.pair[:, None] == b.pair[None, :]
    apart = (a.size[:, None] - b.size[None, :]) / SIZE_OCTAVES
    found: Floats = SITE_ELSE**2 * same * np.exp(-0.5 * apart**2)
    return found


def _shift(anchor: Anchor, asked: Traits) -> tuple[Floats, Floats]:
    """What the anchor's rows say of others: a shift of log time, and the variance that is left."""

    def alike(a: Traits, b: Traits) -> Floats:
        found: Floats = _of_site(a, b) + _nearby(a, b)
        return found

    between = alike(anchor.traits, anchor.traits) + np.diag(anchor.sigma**2)
    mine = alike(asked, anchor.traits)
    weights = np.linalg.solve(between, mine.T)
    left = np.diag(alike(asked, asked)) - np.sum(mine * weights.T, axis=1)
    return anchor.left @ weights, np.maximum(left, 0.0)
