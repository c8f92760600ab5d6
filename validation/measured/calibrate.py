"""From records of NCCL to what a calibration file holds of them, and a report of how far to trust it."""

from collections.abc import Mapping, Sequence

import numpy as np

from ringside.sim.libraries.nccl.communicator import find_system
from ringside.sim.libraries.nccl.graph.systems import SYSTEMS
from ringside.sim.libraries.nccl.measured.messages import KINDS
from ringside.sim.libraries.nccl.measured.stored import Stored, correction_lines, correlations, interval
from ringside.sim.libraries.nccl.releases import names_one
from ringside.sim.record import Record, RecordError
from ringside.topologies.units import format_size
from ringside.validation.measured.fit import Fitted, fit
from ringside.validation.measured.observed import observed
from ringside.validation.measured.priors import priors

MIN_ROWS = 4
WORST_ROWS = 3

_TOLD = 0.95
"""A parameter whose spread is less than this part of its prior's was told something by the rows."""

_LEFT = 1.2816
"""A parameter so many prior deviations away has left what four of five were expected to be."""


def calibrate_nccl(records: Sequence[Record], machine: str, values: Mapping[str, str]) -> Stored:
    """Fit a machine to all records of NCCL's that there is a form for."""
    rows = observed(records, machine, values)
    if not rows:
        raise RecordError(f"no row of {', '.join(KINDS)} among NCCL's: nothing to fit; measure one of these")
    sites = tuple(sorted({row.record.site or "one site" for row in rows}))
    found = fit(rows, pooled=len(sites) > 1)
    if len(found.rows) < MIN_ROWS:
        raise RecordError(f"{len(found.rows)} rows of NCCL's to fit; measure {MIN_ROWS} sizes or more")
    return stored(found, machine, sites)


def stored(found: Fitted, machine: str, sites: tuple[str, ...]) -> Stored:
    """A fit as a file holds it."""
    model = found.model
    sigma = np.sqrt(np.diag(model.covariance))
    told = [place for place, prior in enumerate(found.priors) if sigma[place] < _TOLD * prior.sigma]
    names = [found.priors[place].name for place in told]
    seconds = np.array([row.record.time_s for row in found.rows])
    errors = model.predict(found.chosen.tasks).time_s / seconds - 1
    worst = np.argsort(-np.abs(errors), kind="stable")[:WORST_ROWS]
    versions = {row.record.library_version for row in found.rows}
    return Stored(
        machine=machine,
        rows=len(found.rows),
        sites=sites,
        releases=tuple(sorted(version if names_one(version) else "unknown" for version in versions)),
        nodes=model.nodes,
        pooled=model.pooled,
        facts=model.facts,
        noise=float(f"{model.noise:.4g}"),
        median_error=float(f"{np.median(np.abs(errors)):.4g}"),
        p90_error=float(f"{np.percentile(np.abs(errors), 90):.4g}"),
        worst=tuple(_named(found, place, errors[place]) for place in worst),
        left_prior=tuple(
            prior.name for prior in found.priors if abs(_moved(found, prior.name)) > _LEFT
        ),
        parameters={
            prior.name: interval(model.values[prior.name], float(spread))
            for prior, spread in zip(found.priors, sigma, strict=True)
        },
        correlations=correlations(names, model.covariance[np.ix_(told, told)]),
        correction=correction_lines(model.correction),
    )  # fmt: skip


def _moved(found: Fitted, name: str) -> float:
    """By how many of its prior's deviations a parameter was moved."""
    (prior,) = (prior for prior in found.priors if prior.name == name)
    return float(np.log(found.model.values[name] / prior.value) / prior.sigma)


def _named(found: Fitted, place: int, error: float) -> str:
    task, row = found.chosen.tasks[place], found.rows[place]
    return (
        f"{task.kind} of {format_size(task.nbytes)} on {task.comm.nodes} nodes, {row.record.ranks} ranks, "
        f"{'/'.join(task.pair)} {error:+.1%}"
    )


def report_nccl(stored: Stored) -> list[str]:
    """What was fitted, how sure it is and how well it fits, line by line."""
    known = {line.split()[0] for line in stored.correlations.splitlines()}
    expected = (
        {prior.name: prior for prior in priors(find_system(stored.machine))}
        if stored.machine in SYSTEMS
        else {}
    )
    facts = []
    if not stored.facts.ll128:
        facts.append("no LL128 between nodes")
    if stored.facts.channels is not None:
        facts.append(f"{stored.facts.channels} channels between nodes")
    lines = [
        "",
        f"nccl: {stored.described}, NCCL {', '.join(stored.releases)}; error of the rows fitted median "
        f"{stored.median_error:.1%}, 90th percentile {stored.p90_error:.1%}",
        f"  graph facts other than the preset's: {'; '.join(facts) or 'none'}",
    ]
    for name, (value, low, high) in stored.parameters.items():
        if name not in known:
            continue
        text = f"  {name:<24} {value:>9.4g}  four of five within {low:.4g} to {high:.4g}"
        if name in stored.left_prior:
            prior = expected.get(name)
            text += f"  (left its prior{f', {prior.value:.3g}' if prior else ''})"
        lines.append(text)
    lines += [
        f"  of {len(stored.parameters) - len(known)} parameters these rows say nothing",
        f"  worst rows: {'; '.join(stored.worst)}",
    ]
    return lines
