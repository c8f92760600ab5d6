"""Predictions against measurements, with fitted, held-out and uncalibrated rows kept apart."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from ringside.sim.calibration import AUTO, Calibration, shipped, why_not
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.library import answer
from ringside.sim.libraries.mpi.library import Mpi
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.record import Record, digest
from ringside.topologies.load import parse_name
from ringside.validation.errors import summarize
from ringside.validation.measurements import Measurements, measurements_of
from ringside.validation.mpi.observed import algorithm_of, predictions
from ringside.validation.rows import PlacedRecord, rows

SETS = ("fitted", "held_out", "unfitted")
"""Rows that set a parameter; other rows of a calibrated algorithm; rows without calibration."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One record and its prediction; ``lo_s`` and ``hi_s`` are the calibration's band.

    ``choice`` names what was predicted: an algorithm, with its protocol where there are several. ``error`` is
    predicted over measured time, minus one; ``factor`` that by which the prediction is too long or too short,
    at least 1; ``predicted_busbw`` the bus bandwidth of the predicted time, in bytes/s. ``way`` is the
    schedule, or the library with its own or a pinned choice, that carried out the collective.
    """

    record: Record
    predicted_s: float
    lo_s: float
    hi_s: float
    set: str
    choice: str = ""
    error: float = field(init=False)
    factor: float = field(init=False)
    predicted_busbw: float = field(init=False)
    way: str = field(init=False)

    def __post_init__(self) -> None:
        record = self.record
        ratio = self.predicted_s / record.time_s
        object.__setattr__(self, "error", ratio - 1)
        object.__setattr__(self, "factor", max(ratio, record.time_s / self.predicted_s))
        object.__setattr__(self, "predicted_busbw", record.busbw * record.time_s / self.predicted_s)
        object.__setattr__(self, "way", _way(record))


def _way(record: Record) -> str:
    if record.library in LIBRARIES and not LIBRARIES[record.library].by_default:
        return record.algorithm
    if record.algorithm == record.protocol == "auto":
        return f"{record.library}'s own"
    pins = [word for word in (record.algorithm, record.protocol) if word != "auto"]
    return f"{record.library} {'/'.join(pins)}"


@dataclass(frozen=True, slots=True)
class ComparisonSummary:
    """Absolute relative errors of a set of rows, and the median of the rows' own spread.

    ``geomean_error`` is the geometric mean of the rows' `Compared.factor`, minus one. ``median_spread`` is
    over rows whose spread is known, 0 if none.
    """

    rows: int
    median_error: float
    geomean_error: float
    p90_error: float
    worst_error: float
    typical_factor: float
    p90_factor: float
    worst_factor: float
    median_spread: float


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Measurements beside predictions.

    ``basis`` is the source of the predictions, empty if there is none; ``summaries`` are the errors of
    fitted, held-out and uncalibrated rows, kept apart.
    """

    compared: Sequence[Compared]
    basis: str
    summaries: Mapping[str, ComparisonSummary]
    headline: str = ""


def compare(
    records: Sequence[Record],
    cluster: str,
    settings: Mapping[str, str] | None = None,
    calibration: "Calibration | str | None" = AUTO,
    *,
    network: str = "fifo",
    pool_sites: bool = False,
) -> list[Compared]:
    """Predict every record on the cluster, calibrated where there is a fit for it.

    ``auto`` uses the shipped calibration of the machine for the library that made the records. Fits and
    measurements exist for the ``fifo`` network only.
    """
    measured = measurements_of(records, cluster, settings or {}, pool_sites=pool_sites)
    return list(compare_measurements(measured, calibration, network).compared)


def compare_measurements(
    measured: Measurements, calibration: "Calibration | str | None", network: str = "fifo"
) -> Comparisons:
    """Predict every measurement, as `compare` does."""
    records, cluster, settings = measured.records, measured.cluster, measured.settings
    of_mpi = [record for record in records if record.library == Mpi.name]
    is_auto = calibration == AUTO
    if is_auto and network != "fifo":
        calibration = None
    elif is_auto and of_mpi:
        own = shipped(parse_name(cluster).machine)
        calibration = own if own and own.mpi else None
    given = calibration if isinstance(calibration, Calibration) else None
    if calibration not in (AUTO, None, given):
        raise ValueError(f"calibration {calibration!r}; read it first, or write {AUTO}")
    if given and network != "fifo":
        raise ValueError(
            f"calibrations are fitted on the fifo network, not on {network}; "
            "write --calibration none, or leave --network out"
        )
    of_others = [record for record in measured.ran if record.library != Mpi.name]
    mpi = predictions(of_mpi, cluster, settings, given) if of_mpi else iter(())
    others = rows(of_others, cluster, settings, network, calibration)
    left = iter(others)
    compared = [
        Compared(record, *next(mpi), _set(record, given), algorithm_of(record))
        if record.library == Mpi.name
        else _predicted(record, next(left), given, cluster)
        for record in records
    ]
    errors = summaries(compared)
    basis = _basis(others, cluster) if calibration == AUTO else ""
    return Comparisons(compared, basis, errors, headline(errors))


def _basis(compared: Sequence[PlacedRecord], cluster: str) -> str:
    """Describe what the predictions of NCCL's rows rest on; empty without such rows."""
    of_nccl = [row for row in compared if row.record.library == Nccl.name]
    if not of_nccl:
        return ""
    if known := next(filter(None, (row.library.calibration for row in of_nccl)), None):
        return f"times of NCCL as measured ({known.cluster})"
    return f"not calibrated: {of_nccl[0].library.uncalibrated or why_not(parse_name(cluster).name)}"


def _set(record: Record, calibration: Calibration | None) -> str:
    """Return the set of a record that is compared with a calibration."""
    if calibration is None:
        return "unfitted"
    return "fitted" if digest(record) in calibration.used else "held_out"


def _predicted(record: Record, row: PlacedRecord, given: Calibration | None, cluster: str) -> Compared:
    """Predict a row by the fitted textbook parameters if any, else by its library's own model."""
    if given and row.fit:
        ends = row.calibrated(row.fit, given.settings_on(cluster))
        return Compared(record, *ends, _set(record, given), row.textbook.choose(row.collective).name)
    time = answer(row.library, row.collective)
    is_measured = time.engine == "measured"
    ends = time.time_s, *((time.time_lo_s, time.time_hi_s) if is_measured else (time.time_s,) * 2)
    return Compared(
        record, *ends, _set(record, row.library.calibration if is_measured else None), time.choice
    )


def summaries(compared: Sequence[Compared]) -> dict[str, ComparisonSummary]:
    """Summarise each set that has rows; sets are never mixed."""
    return {
        name: _summary([row for row in compared if row.set == name])
        for name in SETS
        if any(row.set == name for row in compared)
    }


def _summary(compared: Sequence[Compared]) -> ComparisonSummary:
    errors = summarize([row.error for row in compared])
    factors = summarize([row.factor for row in compared])
    spreads = [row.record.spread for row in compared if row.record.spread]
    return ComparisonSummary(
        rows=errors.rows,
        median_error=errors.median,
        geomean_error=math.exp(fmean(abs(math.log1p(row.error)) for row in compared)) - 1,
        p90_error=errors.p90,
        worst_error=errors.worst,
        typical_factor=factors.median,
        p90_factor=factors.p90,
        worst_factor=factors.worst,
        median_spread=median(spreads) if spreads else 0.0,
    )


def headline(sums: Mapping[str, ComparisonSummary]) -> str:
    """Summarize the errors in a sentence: of held-out rows if there are any, else of the others."""
    kinds = {
        "held_out": "held out",
        "unfitted": "without a calibration",
        "fitted": "that set the parameters",
    }
    for kind, which in kinds.items():
        if kind in sums:
            s = sums[kind]
            noise = f"; the measurements' own spread is {s.median_spread:.1%}" if s.median_spread else ""
            rows = "row" if s.rows == 1 else "rows"
            return (
                f"Predictions are off by {s.median_error:.1%} (median) on {s.rows} {rows} {which}, "
                f"nine of ten within {s.p90_factor:.2f}x, worst {s.worst_factor:.2f}x{noise}."
            )
    return "There are no rows to compare."


def summary_lines(sums: Mapping[str, ComparisonSummary]) -> list[str]:
    """Return one line per set of rows."""
    return [
        f"{name}: {s.rows} rows, typically {s.typical_factor:.2f}x off, nine of ten within "
        f"{s.p90_factor:.2f}x, worst {s.worst_factor:.2f}x"
        + (f"; the measurements' own spread {s.median_spread:.1%}" if s.median_spread else "")
        for name, s in sums.items()
    ]
