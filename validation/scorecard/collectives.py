"""NCCL's measured model on held-out rows, beside simple rules.

Every split fits some rows of a machine and judges others: more nodes, another site, the sizes between. A row
is never judged by a fit that included it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ringside.sim.libraries.nccl import belief
from ringside.sim.libraries.nccl.measured import TaskTimes
from ringside.sim.libraries.nccl.message_times import KINDS
from ringside.sim.libraries.nccl.send_times import SEND_KINDS
from ringside.sim.record import Record
from ringside.validation.errors import ErrorSummary
from ringside.validation.nccl.fit import fit
from ringside.validation.nccl.networks import NOTHING, Learnt
from ringside.validation.nccl.observed import NcclRow, choose, is_observable, observed
from ringside.validation.published import published
from ringside.validation.published.calibrations import (
    is_left_out,
    learnt_around,
    mates_of,
    nodes_of,
    setting_of,
)
from ringside.validation.scorecard.baselines import BASELINES
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable, Score, score

KIB, MIB = 1024, 1024**2
SMALL, LARGE = 64 * KIB, 64 * MIB
"""The gap held out of a run."""

HALF = 4 * MIB
"""The size up to which a run is fitted; larger sizes are judged."""

_LEAST, _LOG = 4, 12
"""The minimum number of rows for a fit, and for a log."""

_SEVERAL = 3
"""The minimum number of sites for a score of a machine's own."""

MORE = "more nodes"
ANOTHER = "another site"
ONE_KNOWN = "another site, one row known"
UNMEASURED = "another machine"
"""Several nodes of a machine that was measured on one, or whose nodes were."""

SENDS = "sends and all-to-all"

SIZES = ("to 64 KiB", "to 4 MiB", "to 128 MiB", "128 MiB and more")
"""Classes of sizes."""


@dataclass(frozen=True, slots=True)
class Split:
    """Rows to fit and rows to judge of one machine; ``factor`` is the growth of the node count."""

    name: str
    machine: str
    fitted: list[NcclRow]
    judged: list[NcclRow]
    pooled: bool = False
    factor: float = 1.0
    network: Learnt = NOTHING


@dataclass(frozen=True, slots=True)
class SiteScore:
    """Errors at unseen sites, where each site counts once, independent of its number of rows.

    The figures are the median and the mean of the sites' medians; ``large`` is their median over rows of 128
    MiB and more alone, NaN without any. ``mean`` is over all rows. ``inside`` is the mean over sites of the
    share of their rows in their intervals.
    """

    name: str
    sites: int
    median_of_medians: float
    mean_of_medians: float
    large: float
    mean: float
    inside: float


def collective_tables() -> list[JudgedTable]:
    """Return a table per fit of the published rows."""
    return [
        JudgedTable(
            name=f"{split.name} of {split.machine}",
            title="NCCL's calibrated times",
            source="validation/published",
            sets=f"{len(split.fitted)} rows",
            rule="several",
            judged=lambda split=split: judge(split),  # type: ignore[misc]
        )
        for split in splits(published())
    ]


def splits(records: Sequence[Record]) -> Iterator[Split]:
    """Yield all splits that the rows support."""
    collectives = [record for record in records if is_observable(record) and not is_left_out(record)]
    for kinds in (KINDS, SEND_KINDS):
        usable = [record for record in records if is_observable(record, kinds)]
        for machine in sorted({record.cluster for record in usable}):
            own = observed([one for one in usable if one.cluster == machine], machine, {}, kinds)
            mates = [one for one in usable if one.cluster in mates_of(machine) and nodes_of(one) == 1]
            for split in _of_machine(machine, own, observed(mates, machine, {}, kinds)):
                if kinds == SEND_KINDS:
                    yield replace(split, name=f"{split.name}, {SENDS}")
                    continue
                unseen = split.judged[0].record.site if split.name == ANOTHER else ""
                seen = [record for record in collectives if record.site != unseen]
                yield replace(split, network=learnt_around(machine, seen))
            for run in dict.fromkeys(row.run for row in own) if kinds == KINDS else ():
                yield from _of_run(machine, [row for row in own if row.run == run])


def _of_machine(machine: str, own: Sequence[NcclRow], mates: Sequence[NcclRow]) -> Iterator[Split]:
    """Yield more nodes, other sites and other machines; rows of another setting are another machine's."""
    for setting in dict.fromkeys(setting_of(row.record) for row in own):
        yield from _more_nodes(machine, [row for row in own if setting_of(row.record) == setting])
    yield from _other_sites(machine, own, mates)
    of_one = [row for row in (*own, *mates) if row.comm.nodes == 1]
    several = [row for row in own if row.comm.nodes > 1 and not is_left_out(row.record)]
    if len(of_one) >= _LEAST and several:
        yield Split(UNMEASURED, machine, of_one, several, pooled=True)


def judge(split: Split) -> list[JudgedRow]:
    """Fit, predict, and compare with the measurements.

    Logs of another site are judged twice: with the fit, and with the fit scaled by one row of each log.
    """
    model = fit(split.fitted, pooled=split.pooled, network=split.network).model
    chosen = choose(split.judged, model.facts)
    if not chosen.tasks:
        return []
    rows = [split.judged[place] for place in chosen.kept]
    judged = _beside(split, split.name, rows, model.predict(chosen.tasks))
    for run in dict.fromkeys(row.run for row in rows) if split.name == ANOTHER else ():
        of_run = sorted(
            (place for place, row in enumerate(rows) if row.run == run),
            key=lambda place: rows[place].record.nbytes,
        )
        if len(of_run) < _LOG:
            continue
        known = of_run.pop(len(of_run) // 3)  # where latency and bandwidth both count
        scaled = model.anchored([chosen.tasks[known]], [rows[known].record.time_s])
        answer = scaled.predict([chosen.tasks[place] for place in of_run])
        judged += _beside(split, ONE_KNOWN, [rows[place] for place in of_run], answer)
    return judged


def _beside(split: Split, name: str, rows: Sequence[NcclRow], answer: TaskTimes) -> list[JudgedRow]:
    others = {rule: find(split.fitted, rows) for rule, find in BASELINES.items()}
    return [
        JudgedRow(
            series=split.machine,
            what=f"{row.record.collective} of {row.record.nbytes} B on {row.record.ranks} ranks",
            measured=row.record.time_s,
            predicted=float(answer.time_s[i]),
            part=name,
            low=float(answer.lo_s[i]),
            high=float(answer.hi_s[i]),
            baselines={rule: float(seconds[i]) for rule, seconds in others.items()},
            traits={
                "size": size_class(row.record.nbytes),
                "machine": split.machine,
                "collective": row.record.collective,
                "nodes": f"{split.factor:g} x as many",
                "site": row.record.site,
            },
        )
        for i, row in enumerate(rows)
    ]


def collective_scores(rows: Sequence[JudgedRow]) -> list[Score]:
    """Score every kind of split, and the rows of more nodes and of other sites by their traits."""
    groups = {"question": [(row.part, row) for row in rows]}
    for trait in ("size", "machine", "collective", "nodes"):
        parts = (MORE,) if trait == "nodes" else (MORE, ANOTHER)
        groups[trait] = [(row.traits[trait], row) for row in rows if row.part in parts]
    return [
        score(group, name, [row for own, row in named if own == name])
        for group, named in groups.items()
        for name in sorted({name for name, _ in named}, key=_order)
    ]


def site_scores(rows: Sequence[JudgedRow]) -> list[SiteScore]:
    """Score both splits by site, where there are any, and unseen sites of each machine with three or more."""
    unseen = [row for row in rows if row.part == ANOTHER]
    groups = {name: [row for row in rows if row.part == name] for name in (ANOTHER, ONE_KNOWN)}
    for machine in sorted({row.series for row in unseen}):
        own = [row for row in unseen if row.series == machine]
        if len({row.traits["site"] for row in own}) >= _SEVERAL:
            groups[f"{ANOTHER} of {machine}"] = own
    return [_site_score(name, own) for name, own in groups.items() if own]


def _site_score(name: str, rows: Sequence[JudgedRow]) -> SiteScore:
    large = [one.median for one in _by_site([row for row in rows if row.traits["size"] == SIZES[-1]])]
    sites = _by_site(rows)
    medians = [one.median for one in sites]
    return SiteScore(
        name=name,
        sites=len(sites),
        median_of_medians=float(np.median(medians)),
        mean_of_medians=float(np.mean(medians)),
        large=float(np.median(large or [np.nan])),
        mean=float(np.mean([abs(row.error) for row in rows])),
        inside=float(np.mean([one.inside for one in sites])),
    )


def _by_site(rows: Sequence[JudgedRow]) -> list[ErrorSummary]:
    """Return the errors of each site."""
    sites: dict[tuple[str, str], list[JudgedRow]] = {}
    for row in rows:
        sites.setdefault((row.series, row.traits["site"]), []).append(row)
    return [score(machine, site, own).errors for (machine, site), own in sites.items()]


def size_class(nbytes: int) -> str:
    """Return the class of a size."""
    return SIZES[belief.size_class(nbytes)]


def _order(name: str) -> tuple[int, str]:
    """Return a sort key of a name; sizes and factors sort by value."""
    if name in SIZES:
        return SIZES.index(name), name
    factor = name.partition(" x ")[0]
    return (int(float(factor) * 100), "") if factor != name else (0, name)


def _more_nodes(machine: str, own: Sequence[NcclRow]) -> Iterator[Split]:
    """Fit the smaller node counts, judge the larger; each count but the first two is a split."""
    counts = sorted({row.comm.nodes for row in own})
    for most in counts[1:-1] if len(counts) > 2 else counts[:1] * (len(counts) == 2 and counts[0] > 1):
        fitted = [row for row in own if row.comm.nodes <= most]
        if len(fitted) < _LEAST or (machine == "dgx-b200" and fitted[0].record.collective in KINDS):
            continue
        for nodes in (count for count in counts if count > most):
            rows = [row for row in own if row.comm.nodes == nodes]
            yield Split(MORE, machine, fitted, rows, factor=nodes / most)


def _other_sites(machine: str, own: Sequence[NcclRow], mates: Sequence[NcclRow]) -> Iterator[Split]:
    """Fit all sites of machines with the same nodes but one, judge that one."""
    for site in dict.fromkeys(row.record.site for row in own):
        others = [row for row in (*own, *mates) if row.record.site != site]
        judged = [row for row in own if row.record.site == site]
        if len(others) >= _LEAST:
            yield Split(ANOTHER, machine, others, judged, pooled=True)


def _of_run(machine: str, run: Sequence[NcclRow]) -> Iterator[Split]:
    """Judge sizes between, a gap in the middle, and all larger sizes."""
    if len({row.record.nbytes for row in run}) < _LOG:
        return
    ordered = sorted(run, key=lambda row: row.record.nbytes)
    yield Split("every other size", machine, ordered[::2], ordered[1::2])
    outside = [row for row in ordered if not SMALL < row.record.nbytes < LARGE]
    gap = [row for row in ordered if SMALL < row.record.nbytes < LARGE]
    if outside and outside[0].record.nbytes <= SMALL and outside[-1].record.nbytes >= LARGE:
        yield Split("a gap of sizes", machine, outside, gap)
    lower = [row for row in ordered if row.record.nbytes <= HALF]
    if len(lower) >= _LEAST and len(lower) < len(ordered):
        yield Split("larger sizes", machine, lower, ordered[len(lower) :])
