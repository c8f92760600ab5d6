"""Calibrate MPI's model from measured rows, and report the fit."""

from collections.abc import Mapping, Sequence

import numpy as np

from ringside.sim.libraries.mpi.measured import EXPECTED, PARAMETERS, StoredMpi, correction_lines
from ringside.sim.record import Record, RecordError
from ringside.topologies.catalogue import split
from ringside.topologies.units import format_size
from ringside.validation.errors import summarize
from ringside.validation.mpi.fit import fit
from ringside.validation.mpi.observed import is_observable, observed

MIN_ROWS = 4
WORST_ROWS = 3


def calibrate_mpi(records: Sequence[Record], cluster: str, settings: Mapping[str, str]) -> StoredMpi:
    """Fit MPI's model to those records of one cluster that it has a form for."""
    known = [record for record in records if is_observable(record)]
    if len(known) < MIN_ROWS:
        raise RecordError(f"too few records of MPI to fit ({len(known)}); measure {MIN_ROWS} sizes or more")
    rows = observed(known, cluster, settings)
    model = fit(rows)
    times = np.array([record.time_s for record in known])
    errors = model.seconds([row.task for row in rows])[0] / times - 1
    summary = summarize(errors.tolist())
    return StoredMpi(
        machine=split(cluster)[0],
        rows=len(rows),
        versions=tuple(sorted({record.library_version or "MPI" for record in known})),
        nodes=model.nodes,
        tasks=model.tasks,
        noise=round(model.noise, 4),
        kept_MiB=model.values["kept_MiB"],
        median_error=round(summary.median, 4),
        p90_error=round(summary.p90, 4),
        worst=tuple(
            f"{known[i].algorithm} {known[i].collective} of {format_size(known[i].nbytes)} on "
            f"{known[i].ranks} ranks {errors[i]:+.1%}"
            for i in np.argsort(-np.abs(errors))[:WORST_ROWS]
        ),
        parameters={name: float(f"{model.values[name]:.5g}") for name in PARAMETERS},
        correction=correction_lines(model.correction),
    )


def report_mpi(stored: StoredMpi) -> list[str]:
    """Report the fitted parameters beside their priors."""
    lines = [
        "",
        f"mpi, {stored.described}: error median {stored.median_error:.1%}, 90th percentile "
        f"{stored.p90_error:.1%}",
        f"  {'kept_MiB':<13} {stored.kept_MiB:>8.4g}            above it, scratch memory is allocated again",
    ]
    for name in PARAMETERS:
        one = EXPECTED[name]
        lines.append(f"  {name:<13} {stored.parameters[name]:>8.4g} (of {one.value:>5g}) {one.meaning}")
    return [*lines, f"  worst rows: {'; '.join(stored.worst)}"]
