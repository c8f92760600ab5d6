"""Calibrate NCCL's measured model from records, and report its uncertainty and errors."""

from collections.abc import Mapping, Sequence

import numpy as np

from ringside.sim.libraries.nccl.communicator import SiteFacts, find_system
from ringside.sim.libraries.nccl.graph.system import SYSTEMS
from ringside.sim.libraries.nccl.message_times import KINDS
from ringside.sim.libraries.nccl.releases import names_one
from ringside.sim.libraries.nccl.send_times import SEND_PARAMETERS
from ringside.sim.libraries.nccl.stored import Stored, correction_lines, correlations, interval
from ringside.sim.record import Record, RecordError
from ringside.topologies.units import format_size
from ringside.validation.errors import summarize
from ringside.validation.nccl.fit import POOLED, Fitted, fit
from ringside.validation.nccl.networks import INFORMED, NOTHING, Learnt
from ringside.validation.nccl.observed import observed
from ringside.validation.nccl.priors import priors, send_priors

MIN_ROWS = 4
WORST_ROWS = 3

_LEFT = 1.2816
"""The number of prior deviations beyond which a parameter has left its prior's 80 % interval."""


def calibrate_nccl(
    records: Sequence[Record],
    machine: str,
    values: Mapping[str, str],
    kinds: Sequence[str] = KINDS,
    facts: SiteFacts | None = None,
    network: Learnt = NOTHING,
) -> Stored:
    """Fit a machine to all NCCL records of these kinds, which share a form.

    ``facts`` are those of the site, if they are known; ``network`` has the priors between nodes.
    """
    rows = observed(records, machine, values, kinds)
    if not rows:
        raise RecordError(f"no row of {', '.join(kinds)} among NCCL's; measure one of these")
    sites = tuple(sorted({row.record.site or "one site" for row in rows}))
    fitted = fit(rows, pooled=len(sites) > 1, facts=facts, network=network)
    if len(fitted.rows) < MIN_ROWS:
        raise RecordError(f"{len(fitted.rows)} rows of NCCL to fit; measure {MIN_ROWS} sizes or more")
    return stored(fitted, machine, sites, network)


def unmeasured_sends(machine: str, facts: SiteFacts) -> Stored:
    """Return the sends of a machine without rows of them: their priors."""
    return Stored(
        machine=machine, rows=0, sites=(), releases=(), nodes=(1,), pooled=True, facts=facts, noise=POOLED,
        median_error=0.0, p90_error=0.0, worst=(), left_prior=(),
        parameters={prior.name: interval(prior.value, prior.sigma) for prior in send_priors()},
        correlations="", correction="",
    )  # fmt: skip


def stored(fitted: Fitted, machine: str, sites: tuple[str, ...], network: Learnt = NOTHING) -> Stored:
    """Convert a fit to the form of a calibration file."""
    model = fitted.model
    sigma = np.sqrt(np.diag(model.covariance))
    learned = [place for place, prior in enumerate(fitted.priors) if sigma[place] < INFORMED * prior.sigma]
    names = [fitted.priors[place].name for place in learned]
    seconds = np.array([row.record.time_s for row in fitted.rows])
    errors = model.predict(fitted.chosen.tasks).time_s / seconds - 1
    summary = summarize(errors.tolist())
    worst = np.argsort(-np.abs(errors), kind="stable")[:WORST_ROWS]
    versions = {row.record.library_version for row in fitted.rows}
    return Stored(
        machine=machine,
        rows=len(fitted.rows),
        sites=sites,
        releases=tuple(sorted(version if names_one(version) else "unknown" for version in versions)),
        nodes=model.nodes,
        pooled=model.pooled,
        network=network.machines if model.nodes == (1,) else (),
        facts=model.facts,
        noise=float(f"{model.noise:.4g}"),
        median_error=float(f"{summary.median:.4g}"),
        p90_error=float(f"{summary.p90:.4g}"),
        worst=tuple(_named(fitted, place, errors[place]) for place in worst),
        left_prior=tuple(
            prior.name for prior in fitted.priors if abs(_moved(fitted, prior.name)) > _LEFT
        ),
        parameters={
            prior.name: interval(model.values[prior.name], float(spread))
            for prior, spread in zip(fitted.priors, sigma, strict=True)
        },
        correlations=correlations(names, model.covariance[np.ix_(learned, learned)]),
        correction=correction_lines(model.correction),
    )  # fmt: skip


def _moved(fitted: Fitted, name: str) -> float:
    """Return a parameter's distance from its prior, in deviations of the prior."""
    (prior,) = (prior for prior in fitted.priors if prior.name == name)
    return float(np.log(fitted.model.values[name] / prior.value) / prior.sigma)


def _named(fitted: Fitted, place: int, error: float) -> str:
    task, row = fitted.chosen.tasks[place], fitted.rows[place]
    return (
        f"{task.kind} of {format_size(task.nbytes)} on {task.comm.nodes} nodes, {row.record.ranks} ranks, "
        f"{'/'.join(task.pair)} {error:+.1%}"
    )


def report_nccl(stored: Stored) -> list[str]:
    """Report the fitted parameters, their uncertainty and the residual errors, line by line."""
    known = {line.split()[0] for line in stored.correlations.splitlines()}
    of_sends = stored.names == SEND_PARAMETERS
    known_priors = () if of_sends or stored.machine not in SYSTEMS else priors(find_system(stored.machine))
    expected = {prior.name: prior for prior in (send_priors() if of_sends else known_priors)}
    facts = []
    if not stored.facts.ll128:
        facts.append("no LL128 between nodes")
    if stored.facts.channels is not None:
        facts.append(f"{stored.facts.channels} channels between nodes")
    lines = [
        "",
        f"{'sends and receives' if of_sends else 'nccl'}: {stored.described}, "
        f"NCCL {', '.join(stored.releases)}; error of the rows fitted median "
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
        f"  of {len(stored.parameters) - len(known)} parameters not determined by these rows",
        f"  worst rows: {'; '.join(stored.worst)}",
    ]
    return lines
