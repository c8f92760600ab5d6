"""Fit a calibration to measured records, and report its uncertainty and errors."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from ringside.sim.calibration import Calibration, Fit
from ringside.sim.libraries.mpi.library import Mpi
from ringside.sim.libraries.nccl.cluster import is_machine
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.libraries.nccl.send_times import SEND_KINDS
from ringside.sim.libraries.nccl.stored import Stored
from ringside.sim.record import Record, RecordError, digest
from ringside.topologies.catalogue import split
from ringside.topologies.units import format_duration, format_size
from ringside.validation.errors import summarize
from ringside.validation.fit import NAMES, fit
from ringside.validation.measurements import Measurements, measurements_of
from ringside.validation.mpi.calibrate import calibrate_mpi, report_mpi
from ringside.validation.nccl.calibrate import calibrate_nccl, report_nccl
from ringside.validation.rows import PlacedRecord, rows

MIN_ROWS = 4
WORST_ROWS = 3


def calibrate(
    records: Sequence[Record],
    cluster: str,
    settings: Mapping[str, str] | None = None,
    sources: Mapping[str, str] | None = None,
    *,
    pool_sites: bool = False,
) -> Calibration:
    """Fit NCCL's measured model, MPI's, and for everything else each library and algorithm.

    ``cluster`` names the topology that the records ran on; ``sources`` are file names and digests for the
    provenance. Raise `ringside.sim.record.RecordError` for records that must not be mixed or are too few.
    """
    return calibrate_measurements(
        measurements_of(records, cluster, settings or {}, pool_sites=pool_sites), sources or {}
    )


def calibrate_measurements(measured: Measurements, sources: Mapping[str, str]) -> Calibration:
    """Fit measurements of one cluster, as `calibrate` does."""
    records, cluster, settings = measured.records, measured.cluster, measured.settings
    own = {Mpi.name, Nccl.name} if is_machine(cluster) else {Mpi.name}
    of_nccl = [record for record in measured.ran if record.library == Nccl.name and Nccl.name in own]
    of_mpi = [record for record in records if record.library == Mpi.name]
    groups: dict[tuple[str, str, str], list[PlacedRecord]] = {}
    for row in rows([record for record in records if record.library not in own], cluster, settings):
        key = row.record.library, row.record.algorithm, row.record.protocol
        groups.setdefault(key, []).append(row)
    few = [f"{'/'.join(key)}: {len(group)}" for key, group in groups.items() if len(group) < MIN_ROWS]
    if few:
        raise RecordError(f"too few records to fit ({', '.join(few)}); measure {MIN_ROWS} sizes or more")
    sends = [record for record in of_nccl if record.collective in SEND_KINDS]
    machine, nccl = split(cluster)[0], None
    if len(sends) < len(of_nccl):
        nccl = calibrate_nccl(of_nccl, machine, settings)
    return Calibration(
        cluster=records[0].cluster,
        topology=cluster,
        date=datetime.now(UTC).date().isoformat(),
        sources=dict(sources),
        fingerprint=_common(records),
        fits=tuple(_fit(*key, group) for key, group in groups.items()),
        used=tuple(sorted(digest(record) for record in records)),
        nccl=nccl,
        sends=_sends(sends, machine, settings, nccl),
        mpi=calibrate_mpi(of_mpi, cluster, settings) if of_mpi else None,
        settings=dict(settings),
    )


def _sends(
    records: Sequence[Record], machine: str, settings: Mapping[str, str], nccl: Stored | None
) -> Stored | None:
    """Fit sends and receives; too few are an error only where there is nothing else."""
    if not records or (nccl and len(records) < MIN_ROWS):
        return None
    return calibrate_nccl(records, machine, settings, SEND_KINDS, nccl.facts if nccl else None)


def report(calibration: Calibration) -> str:
    """Report the fitted parameters, their uncertainty and the residual errors."""
    lines = [f"calibration of {calibration.cluster} as {calibration.topology}"]
    for of_nccl in filter(None, (calibration.nccl, calibration.sends)):
        lines += report_nccl(of_nccl)
    if calibration.mpi:
        lines += report_mpi(calibration.mpi)
    for fitted in calibration.fits:
        lines += [
            "",
            f"{fitted.library}/{fitted.algorithm}/{fitted.protocol}: {fitted.rows} rows, error median "
            f"{fitted.median_error:.1%}, 90th percentile {fitted.p90_error:.1%}; nine of ten measured "
            f"{fitted.band[0]:.2f} to {fitted.band[1]:.2f} times predicted",
        ]
        for name in NAMES:
            value = getattr(fitted.parameters, name)
            text = f"  {name:<6} {_unit(name, value):>14}"
            if name in fitted.fixed:
                text += f"  (fixed: {fitted.fixed[name]})"
            else:
                low, high = fitted.interval[name]
                text += f"  90 % interval {_unit(name, low)} to {_unit(name, high)}"
                text += "" if value else "  (at boundary)"
            lines.append(text)
        lines.append(f"  worst rows: {'; '.join(fitted.worst)}")
    return "\n".join(lines)


def _fit(library: str, algorithm: str, protocol: str, group: list[PlacedRecord]) -> Fit:
    solution = fit(group)
    errors = 1 / solution.ratios - 1
    summary = summarize(errors.tolist())
    low, high = np.percentile(solution.ratios, [5, 95])
    return Fit(
        library=library,
        algorithm=algorithm,
        protocol=protocol,
        parameters=solution.parameters,
        interval=solution.interval,
        fixed=solution.fixed,
        band=(min(float(low), 1.0), max(float(high), 1.0)),
        rows=len(group),
        median_error=summary.median,
        p90_error=summary.p90,
        worst=tuple(
            f"{group[i].record.collective} of {format_size(group[i].record.nbytes)} on "
            f"{group[i].record.ranks} ranks {errors[i]:+.1%}"
            for i in np.argsort(-np.abs(errors))[:WORST_ROWS]
        ),
    )


def _common(records: Sequence[Record]) -> dict[str, str]:
    """Return the entries that all records' fingerprints share."""
    first = records[0].fingerprint
    return {
        key: value
        for key, value in first.items()
        if all(record.fingerprint.get(key) == value for record in records)
    }


def _unit(name: str, value: float) -> str:
    """Format a parameter with its unit: seconds, or seconds per byte."""
    return format_duration(value, digits=3) + ("" if name in ("alpha", "launch") else "/B")
