"""The errors of the measured model on held-out rows, beside simple rules.

Every question fits some rows of a machine and judges others: more nodes, another site, the sizes between. A
row is never judged by a fit that included it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ringside.sim.libraries.nccl.measured import Answer
from ringside.sim.record import Record
from ringside.validation.nccl.baselines import BASELINES
from ringside.validation.nccl.fit import fit
from ringside.validation.nccl.observed import Observed, choose, is_observable, observed
from ringside.validation.published.calibrations import is_left_out, mates_of

KIB, MIB = 1024, 1024**2
SMALL, LARGE = 64 * KIB, 64 * MIB
"""The gap held out of a run."""

HALF = 4 * MIB
"""The size up to which a run is fitted; larger sizes are judged."""

_LEAST, _LOG = 4, 12
"""The minimum number of rows for a fit, and for a log."""

ANOTHER = "another site"
ONE_KNOWN = "another site, one row known"


@dataclass(frozen=True, slots=True)
class Question:
    """Rows to fit and rows to judge of one machine; ``factor`` is the growth of the node count."""

    name: str
    machine: str
    fitted: list[Observed]
    judged: list[Observed]
    pooled: bool = False
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One row: measured, predicted by the model and by each baseline; NaN for no prediction."""

    question: str
    machine: str
    factor: float
    record: Record
    time_s: float
    lo_s: float
    hi_s: float
    baselines: dict[str, float]

    @property
    def error(self) -> float:
        """The model's absolute relative error."""
        return abs(self.time_s / self.record.time_s - 1)

    @property
    def inside(self) -> bool:
        """Whether the measured time lies in the interval."""
        return self.lo_s <= self.record.time_s <= self.hi_s

    def baseline_error(self, name: str) -> float:
        """Return the same error of a baseline."""
        return abs(self.baselines[name] / self.record.time_s - 1)


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of some rows: the model's median, 90th percentile and coverage, each baseline's median."""

    group: str
    name: str
    rows: int
    median: float
    p90: float
    inside: float
    baselines: dict[str, float]


@dataclass(frozen=True, slots=True)
class SiteScore:
    """Errors at unseen sites, where each site counts once, whatever its number of rows.

    The figures are the median and the mean of the sites' medians; ``large`` is their median over rows of 128
    MiB and more alone, NaN without any. ``mean`` is over all rows.
    """

    name: str
    sites: int
    median_of_medians: float
    mean_of_medians: float
    large: float
    mean: float


def questions(records: Sequence[Record]) -> Iterator[Question]:
    """Yield all questions that the published rows support."""
    usable = [record for record in records if is_observable(record)]
    for machine in sorted({record.cluster for record in usable}):
        own = observed([record for record in usable if record.cluster == machine], machine, {})
        mates = [r for r in usable if r.cluster in mates_of(machine) and r.num_nodes == 1]
        for other in (False, True):  # rows of another setting are another machine's
            yield from _more_nodes(machine, [row for row in own if is_left_out(row.record) == other])
        yield from _other_sites(machine, own, observed(mates, machine, {}))
        for run in dict.fromkeys(row.run for row in own):
            yield from _of_run(machine, [row for row in own if row.run == run])


def judge(question: Question) -> list[Judged]:
    """Fit, predict, and compare with the measurements.

    Logs of another site are judged twice: with the fit, and with the fit scaled by one row of each log.
    """
    model = fit(question.fitted, pooled=question.pooled).model
    chosen = choose(question.judged, model.facts)
    if not chosen.tasks:
        return []
    rows = [question.judged[place] for place in chosen.kept]
    judged = _beside(question, question.name, rows, model.predict(chosen.tasks))
    for run in dict.fromkeys(row.run for row in rows) if question.pooled else ():
        of_run = sorted(
            (place for place, row in enumerate(rows) if row.run == run),
            key=lambda place: rows[place].record.nbytes,
        )
        if len(of_run) < _LOG:
            continue
        known = of_run.pop(len(of_run) // 3)  # where latency and bandwidth both count
        scaled = model.anchored([chosen.tasks[known]], [rows[known].record.time_s])
        answer = scaled.predict([chosen.tasks[place] for place in of_run])
        judged += _beside(question, ONE_KNOWN, [rows[place] for place in of_run], answer)
    return judged


def _beside(question: Question, name: str, rows: Sequence[Observed], answer: Answer) -> list[Judged]:
    others = {rule: find(question.fitted, rows) for rule, find in BASELINES.items()}
    return [
        Judged(
            *(name, question.machine, question.factor, row.record),
            *(float(answer.time_s[i]), float(answer.lo_s[i]), float(answer.hi_s[i])),
            {rule: float(seconds[i]) for rule, seconds in others.items()},
        )
        for i, row in enumerate(rows)
    ]


def scores(judged: Sequence[Judged]) -> list[Score]:
    """Score every question, and the rows of more nodes and other sites by class."""
    far = [row for row in judged if row.question in ("more nodes", ANOTHER)]
    parted: list[tuple[str, Sequence[Judged], Callable[[Judged], str]]] = [
        ("question", judged, lambda row: row.question),
        ("size", far, lambda row: size_class(row.record.nbytes)),
        ("machine", far, lambda row: row.machine),
        ("collective", far, lambda row: row.record.collective),
        (
            "nodes",
            [row for row in far if row.question == "more nodes"],
            lambda row: f"{row.factor:g} x as many",
        ),
    ]
    scored = []
    for group, rows, key in parted:
        names = dict.fromkeys(sorted(map(key, rows), key=_order))
        scored += [_score(group, name, [row for row in rows if key(row) == name]) for name in names]
    return scored


def site_scores(judged: Sequence[Judged]) -> list[SiteScore]:
    """Score both questions of another site, where there are any."""
    scored = []
    for name in (ANOTHER, ONE_KNOWN):
        rows = [row for row in judged if row.question == name]
        if rows:
            medians, large = _medians(rows), _medians([row for row in rows if row.record.nbytes >= 128 * MIB])
            scored.append(
                SiteScore(
                    *(name, len(medians), float(np.median(medians)), float(np.mean(medians))),
                    *(float(np.median(large or [np.nan])), float(np.mean([row.error for row in rows]))),
                )
            )
    return scored


def _medians(rows: Sequence[Judged]) -> list[float]:
    """Return the median error of each site."""
    sites: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        sites.setdefault((row.machine, row.record.site), []).append(row.error)
    return [float(np.median(errors)) for errors in sites.values()]


def size_class(nbytes: int) -> str:
    """Return the class of a size."""
    for most, name in ((64 * KIB, "to 64 KiB"), (4 * MIB, "to 4 MiB"), (128 * MIB - 1, "to 128 MiB")):
        if nbytes <= most:
            return name
    return "128 MiB and more"


def _order(name: str) -> tuple[int, str]:
    """Return a sort key of a name; sizes and factors sort by value."""
    classes = ["to 64 KiB", "to 4 MiB", "to 128 MiB", "128 MiB and more"]
    if name in classes:
        return classes.index(name), name
    factor = name.partition(" x ")[0]
    return (int(float(factor) * 100), "") if factor != name else (0, name)


def _score(group: str, name: str, rows: Sequence[Judged]) -> Score:
    errors = [row.error for row in rows]
    others = {rule: np.array([row.baseline_error(rule) for row in rows]) for rule in BASELINES}
    return Score(
        *(group, name, len(rows), float(np.median(errors)), float(np.percentile(errors, 90))),
        float(np.mean([row.inside for row in rows])),
        {
            rule: float(np.nanmedian(errors)) if np.isfinite(errors).mean() >= 0.5 else float("nan")
            for rule, errors in others.items()
        },
    )


def _more_nodes(machine: str, own: Sequence[Observed]) -> Iterator[Question]:
    """Fit the smaller node counts, judge the larger; each count but the first two is a split."""
    counts = sorted({row.comm.nodes for row in own})
    for most in counts[1:-1] if len(counts) > 2 else counts[:1] * (len(counts) == 2 and counts[0] > 1):
        fitted = [row for row in own if row.comm.nodes <= most]
        if len(fitted) < _LEAST or machine == "dgx-b200":
            continue
        for nodes in (count for count in counts if count > most):
            rows = [row for row in own if row.comm.nodes == nodes]
            yield Question("more nodes", machine, fitted, rows, factor=nodes / most)


def _other_sites(machine: str, own: Sequence[Observed], mates: Sequence[Observed]) -> Iterator[Question]:
    """Fit all sites of the box but one, judge that one."""
    for site in dict.fromkeys(row.record.site for row in own):
        others = [row for row in (*own, *mates) if row.record.site != site]
        judged = [row for row in own if row.record.site == site]
        if len(others) >= _LEAST:
            yield Question(ANOTHER, machine, others, judged, pooled=True)


def _of_run(machine: str, run: Sequence[Observed]) -> Iterator[Question]:
    """Judge sizes between, a gap in the middle, and all larger sizes."""
    if len({row.record.nbytes for row in run}) < _LOG:
        return
    ordered = sorted(run, key=lambda row: row.record.nbytes)
    yield Question("every other size", machine, ordered[::2], ordered[1::2])
    outside = [row for row in ordered if not SMALL < row.record.nbytes < LARGE]
    gap = [row for row in ordered if SMALL < row.record.nbytes < LARGE]
    if outside and outside[0].record.nbytes <= SMALL and outside[-1].record.nbytes >= LARGE:
        yield Question("a gap of sizes", machine, outside, gap)
    lower = [row for row in ordered if row.record.nbytes <= HALF]
    if len(lower) >= _LEAST and len(lower) < len(ordered):
        yield Question("larger sizes", machine, lower, ordered[len(lower) :])
