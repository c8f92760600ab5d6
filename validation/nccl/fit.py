"""The fit: priors of a machine's parameters, updated by its measurements (robust MAP).

Log-normal priors, and a soft-L1 loss of log time and of each site's deviations, since most sites agree and
a few are far off. Unknown graph facts are those that explain the rows best, and differ from the preset only
for a large gain; then the correction of the residuals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from ringside.sim.libraries.gaussian import EIGHTY
from ringside.sim.libraries.nccl.communicator import MAX_CHANNELS, SiteFacts
from ringside.sim.libraries.nccl.measured import (
    DEVIATIONS,
    MeasuredModel,
    corrected,
    influential_parameters,
    log_form,
    site_deviations,
)
from ringside.sim.libraries.nccl.message_times import TaskArrays, time_us, work_of
from ringside.sim.libraries.nccl.releases import names_one
from ringside.sim.libraries.nccl.send_times import SEND_KINDS
from ringside.validation.nccl.networks import NOTHING, Learnt
from ringside.validation.nccl.observed import Chosen, NcclRow, choose
from ringside.validation.nccl.priors import Prior, send_priors

Floats = NDArray[np.float64]

ONE_SITE, POOLED = 0.05, 0.12
"""Log spread of rows around the form: of one site, and of several pooled."""

DIGITISED = 0.006
"""The same for points read off a smooth curve in a figure."""

_SURE = 30.0
"""Deviations up to which such a point has full weight: figures show no outliers."""

NO_LL128, DOUBLED = 3.0, 6.0
"""Minimum gain in cost of the lack of LL128, or of a doubling of channels."""

EARLY, EARLIER = "2.10.3", 3.0
"""An early release, and the minimum gain in cost of it for a site that names none."""

_WAYS = ((1,), (4, 1))
"""Initial and final spreads: a wide one first smooths the kinks."""

REPEATED = 0.4
"""The share of rows' spread around the form that remains when they are measured again."""

_LEAST_NOISE = 0.02
_TRIALS = 200
_CLOSE = 1e-4


@dataclass(frozen=True, eq=False, slots=True)
class Fitted:
    """A fit: the model, its rows and their times by the form alone."""

    model: MeasuredModel
    priors: tuple[Prior, ...]
    chosen: Chosen
    rows: list[NcclRow]
    cost: float


def fit(
    rows: Sequence[NcclRow],
    *,
    pooled: bool = False,
    facts: SiteFacts | None = None,
    network: Learnt = NOTHING,
) -> Fitted:
    """Fit the machine's parameters to rows of one machine, from the priors of its ``network``.

    Where sites are ``pooled`` each may be slower or faster than the machine in latency and in bandwidth.
    The facts are known for sends, which do not tell them. Rows that name no release count as the newest's,
    or as an early one's where that explains their site much better.
    """
    of_sends = rows[0].record.collective in SEND_KINDS
    expected = send_priors() if of_sends else network.of(rows[0].comm.system)
    if of_sends:
        return _finished(rows, _map(rows, facts or SiteFacts(), expected, pooled), expected, pooled)
    best = _best(rows, expected, pooled)
    for site in sorted({row.record.site for row in rows if _is_undated(row)}):
        older = [_earlier(row) if row.record.site == site and _is_undated(row) else row for row in rows]
        other = _best(older, expected, pooled)
        if other.cost + EARLIER < best.cost:
            rows, best = older, other
    return _finished(rows, best, expected, pooled)


def _best(rows: Sequence[NcclRow], expected: Sequence[Prior], pooled: bool) -> "_Map":
    """Return the fit with the likeliest graph between nodes; its cost includes how unlikely that is."""
    tried = (
        replace(fitted, cost=fitted.cost + unlikely)
        for one, unlikely in _candidates(rows)
        for fitted in [_map(rows, one, expected, pooled)]
    )
    return min(tried, key=lambda one: one.cost)


def _is_undated(row: NcclRow) -> bool:
    return not names_one(row.record.library_version)


def _earlier(row: NcclRow) -> NcclRow:
    """Return the row as one of an early release."""
    return replace(row, comm=replace(row.comm, settings=replace(row.comm.settings, version=EARLY)))


@dataclass(frozen=True, eq=False, slots=True)
class _Rows:
    """The data: log times, each with its spread, and an indicator column per site."""

    chosen: Chosen
    work: TaskArrays
    log_us: Floats
    scale: Floats
    reach: Floats
    sites: Floats


@dataclass(frozen=True, eq=False, slots=True)
class _Map:
    """The maximum a posteriori for one set of facts; ``sites`` is each row's offset by its site."""

    facts: SiteFacts
    rows: _Rows
    values: dict[str, float]
    sites: Floats
    cost: float
    covariance: Floats


def _map(rows: Sequence[NcclRow], facts: SiteFacts, expected: Sequence[Prior], pooled: bool) -> _Map:
    """Return the best of several descents: times have kinks, at which a single one may end."""
    chosen = choose(rows, facts)
    kept = [rows[place] for place in chosen.kept]
    mine = _Rows(
        chosen,
        work_of(chosen.tasks),
        np.log([row.record.time_s * 1e6 for row in kept]),
        _spread(kept, pooled) / chosen.sure / np.sqrt(_weights(kept, pooled)),
        np.where([_is_digitised(row) for row in kept], _SURE, 1.0),
        _sites(kept) if pooled else np.zeros((len(kept), 0)),
    )
    return min((_descend(mine, facts, expected, way) for way in _WAYS), key=lambda one: one.cost)


def _sites(rows: Sequence[NcclRow]) -> Floats:
    """Return an indicator column per site; a single site's rows are the machine's."""
    where = [(row.record.site, row.comm.nodes == 1) for row in rows]
    several = {one for one in (True, False) if len({site for site, scale in where if scale == one}) > 1}
    names = dict.fromkeys(site for site, scale in where if scale in several)
    return np.array(
        [[site == name and scale in several for name in names] for site, scale in where], dtype=np.float64
    ).reshape(len(rows), len(names))


def _descend(rows: _Rows, facts: SiteFacts, expected: Sequence[Prior], way: Sequence[float]) -> _Map:
    """Descend one way; parameters without rows stay at their priors."""
    usual = {prior.name: prior.value for prior in expected}
    names = influential_parameters(rows.work, usual)
    free = [place for place, prior in enumerate(expected) if prior.name in names]
    many, offsets = len(free), rows.sites.shape[1] * DEVIATIONS
    x = centre = np.concatenate([np.log([expected[place].value for place in free]), np.zeros(offsets)])
    sigma = np.concatenate([[expected[place].sigma for place in free], np.ones(offsets)])

    def values(x: Floats) -> dict[str, float]:
        return usual | dict(zip(names, np.exp(x[:many]).tolist(), strict=True))

    for wider in way:
        scale = wider * rows.scale
        parts = site_deviations(rows.work, values(x))
        by_site = np.hstack([rows.sites * part[:, None] for part in parts.T])

        def residuals(x: Floats, scale: Floats = scale, by_site: Floats = by_site) -> Floats:
            off = (np.log(time_us(rows.work, values(x))) + by_site @ x[many:] - rows.log_us) / scale
            of_prior = (x - centre) / sigma
            of_prior[many:] = _soft(of_prior[many:])
            return np.concatenate([rows.reach * _soft(off / rows.reach), of_prior])

        def slopes(x: Floats, scale: Floats = scale, by_site: Floats = by_site) -> Floats:
            times, by_value = log_form(rows.work, values(x), names)
            off = (times + by_site @ x[many:] - rows.log_us) / scale
            steep = _soft_slope(off / rows.reach) / scale
            of_prior = 1 / sigma
            of_prior[many:] *= _soft_slope(x[many:])
            return np.vstack([np.hstack([by_value.T, by_site]) * steep[:, None], np.diag(of_prior)])

        solved = least_squares(
            residuals, x, slopes, method="lm", x_scale=sigma, ftol=_CLOSE, max_nfev=_TRIALS
        )
        x = solved.x
    steepest = slopes(x)
    covariance = np.diag([prior.sigma**2 for prior in expected])
    covariance[np.ix_(free, free)] = np.linalg.inv(steepest.T @ steepest)[:many, :many]
    return _Map(facts, rows, values(x), by_site @ x[many:], float(solved.cost), covariance)


def _finished(rows: Sequence[NcclRow], best: _Map, expected: tuple[Prior, ...], pooled: bool) -> Fitted:
    explained, values = best.rows, best.values
    left = explained.log_us - np.log(time_us(explained.work, values)) - best.sites
    correction = corrected(explained.work, left, REPEATED * explained.scale)
    mean, _ = correction.predict(explained.work)
    rest = np.abs(left - mean)
    # the middle of a normal distribution; and its 80 %, of which some machines' rows have more far ones
    noise = max(1.4826 * float(np.median(rest)), float(np.quantile(rest, 0.8)) / EIGHTY, _LEAST_NOISE)
    kept = [rows[place] for place in explained.chosen.kept]
    nodes = tuple(sorted({row.comm.nodes for row in kept}))
    model = MeasuredModel(values, best.covariance, correction, best.facts, noise, nodes, pooled)
    return Fitted(model, expected, explained.chosen, kept, best.cost)


def _candidates(rows: Sequence[NcclRow]) -> list[tuple[SiteFacts, float]]:
    """Return the possible graphs between nodes, the preset's first, and the cost of each."""
    between = [row.comm for row in rows if row.comm.nodes > 1]
    if not between:
        return [(SiteFacts(), 0.0)]
    lacking = any(SiteFacts(ll128=False).on(comm) != comm for comm in between)
    count = between[0].channels
    doubled = [(None, 0.0), *((2**times * count, DOUBLED * times) for times in (1, 2))]
    return [
        (SiteFacts(ll128, channels), unlikely + NO_LL128 * (not ll128))
        for channels, unlikely in doubled
        if channels is None or channels <= MAX_CHANNELS
        for ll128 in ((True, False) if lacking else (True,))
    ]


def _spread(rows: Sequence[NcclRow], pooled: bool) -> Floats:
    """Return the expected log spread of each row around the form."""
    usual = POOLED if pooled else ONE_SITE
    return np.array([DIGITISED if _is_digitised(row) else usual for row in rows])


def _is_digitised(row: NcclRow) -> bool:
    return "digitised" in row.record.source


def _weights(rows: Sequence[NcclRow], pooled: bool) -> Floats:
    """Return equal weights of rows, or of runs if sites are pooled."""
    if not pooled:
        return np.ones(len(rows))
    runs = [row.run for row in rows]
    counts = {run: runs.count(run) for run in set(runs)}
    return np.array([len(rows) / len(counts) / counts[run] for run in runs])


def _soft(off: Floats) -> Floats:
    """Return the square root of the soft-L1 loss, with its sign."""
    result: Floats = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))
    return result


def _soft_slope(off: Floats) -> Floats:
    root = np.sqrt(1 + off**2)
    result: Floats = 1 / (root * np.sqrt((root + 1) / 2))
    return result
