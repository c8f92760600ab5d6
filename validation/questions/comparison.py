"""Questions about measurements of collectives: predictions beside them, and a cluster's fitted parameters."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from ringside.sim.calibration import Calibration
from ringside.sim.questions.answer import Answer, AnswerOnDemand
from ringside.sim.questions.calibrated import Anchor, anchor_option, calibration_option, scaled
from ringside.sim.questions.fields import files_argument, network_option
from ringside.sim.questions.question import Question, option, settings_option
from ringside.validation.compare import Compared, Comparisons, compare_measurements
from ringside.validation.measurements import Measurements, read_measurements
from ringside.validation.nccl.anchor import with_rows_of


@dataclass(frozen=True, kw_only=True)
class OfRecords(Question):
    """Measurements, and the cluster that they were made on."""

    files: Sequence[Path] = files_argument("Records, nccl-tests text or JSON, or published measurements.")
    cluster: str | None = option(
        "A named cluster, or a YAML file. See ringside topo.",
        metavar="NAME[:COUNT]|FILE", default=None, default_text="inferred from the files",
    )  # fmt: skip
    settings: Mapping[str, str] = settings_option()

    def measured(self, *, pool_sites: bool = False) -> Measurements:
        """Return the measurements in the files; raise `ringside.sim.record.RecordError` for none."""
        return read_measurements(self.files, self.cluster, self.settings, pool_sites=pool_sites)


@dataclass(frozen=True, kw_only=True)
class ByCalibration(OfRecords):
    """Measurements, and the calibration for comparison."""

    calibration: str | Calibration | None = calibration_option()


@dataclass(frozen=True, kw_only=True)
class Fitting(OfRecords):
    """A cluster's parameters, fitted to measurements."""

    schema: ClassVar[str] = "calibrate"

    cluster: str = option("A named cluster, or a YAML file. See ringside topo.", metavar="NAME[:COUNT]|FILE")
    pool_sites: bool = option("Pool records of several sites of one machine.", default=False)

    def ask(self) -> "FittingAnswer":
        """Fit; raise RecordError for records that are too few or must not be mixed."""
        from ringside.validation.calibrate import calibrate_measurements  # help must not wait for scipy

        measured = self.measured(pool_sites=self.pool_sites)
        return FittingAnswer(self, measured, calibrate_measurements(measured, sources_of(self.files)))


@dataclass(frozen=True, slots=True)
class FittingAnswer(AnswerOnDemand):
    """The answer: a calibration fitted to the measurements."""

    question: Fitting
    measured: Measurements
    calibration: Calibration

    @property
    def headline(self) -> str:
        """The errors of the fitted rows."""
        rows = self.rows
        errors = sorted(row["median_error"] for row in rows)
        span = f"{errors[0]:.1%}" + (f" to {errors[-1]:.1%}" if len(errors) > 1 else "")
        count = sum(row["rows"] for row in rows)
        return f"median error {span} over {count:,} fitted rows: calibration of {self.calibration.cluster}"

    @property
    def doubts(self) -> list[str]:
        """What in the files leaves the cluster in doubt."""
        return [*([self.measured.warning] if self.measured.warning else []), *self.notes]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each fit: what was fitted, and the errors of its rows."""
        made = self.calibration
        models = (("nccl", made.nccl), ("sends", made.sends), ("mpi", made.mpi))
        fits = [(f"{one.library}/{one.algorithm}/{one.protocol}", one) for one in made.fits]
        return [
            {"fit": name, "rows": one.rows, "median_error": one.median_error, "p90_error": one.p90_error}
            for name, one in (*((name, one) for name, one in models if one), *fits)
        ]

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs()

    @property
    def notes(self) -> Sequence[str]:
        """Requests that NCCL could not follow, a sentence each."""
        return self.measured.fallbacks


def sources_of(files: Sequence[Path]) -> dict[str, str]:
    """Return each file's name and the SHA-256 of its content."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@dataclass(frozen=True, kw_only=True)
class Comparison(ByCalibration):
    """Predictions beside measurements of collectives: a row for each record."""

    schema: ClassVar[str] = "compare"

    anchor: Anchor | None = anchor_option()
    network: str = network_option()
    pool_sites: bool = option("Pool records of several sites of one machine.", default=False)

    def ask(self) -> "ComparisonAnswer":
        """Predict every record; raise RecordError for records that cannot be compared."""
        measured = self.measured(pool_sites=self.pool_sites)
        calibration = scaled(self.calibration, self.anchor, measured.cluster, self.settings)
        if self.anchor and isinstance(calibration, Calibration):
            calibration = with_rows_of(calibration, self.anchor, measured.records)
        comparisons = compare_measurements(measured, calibration, self.network)
        notes = [
            f"machine: {measured.cluster}, {measured.source}" if self.cluster is None else "",
            measured.network,
            comparisons.basis,
            f"scaled to the site by rows of {self.anchor}" if self.anchor else "",
            f"schedules played on the {self.network} network" if self.network != "fifo" else "",
            *measured.fallbacks,
        ]
        notes = [note for note in notes if note]
        grounds = [comparisons.basis or "each row by its own library", *notes[:1]]
        rests_on = ["; ".join(dict.fromkeys(grounds)), *filter(None, [measured.warning])]
        return ComparisonAnswer(
            self, measured, calibration, comparisons, notes, comparisons.headline, rests_on
        )


@dataclass(frozen=True)
class ComparisonAnswer(Answer):
    """The answer: a row for each record, and the errors of each set of rows.

    ``calibration`` is the question's own, read and scaled by the anchor. ``notes`` name the evidence for the
    machine and the source of the predictions, a sentence each.
    """

    question: Comparison
    measured: Measurements
    calibration: Calibration | str | None
    comparisons: Comparisons
    notes: Sequence[str]
    headline: str
    rests_on: Sequence[str]

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs() | {"cluster": self.measured.cluster}

    @property
    def content(self) -> dict[str, Any]:
        """Everything, in plain values."""
        summary = {name: asdict(one) for name, one in self.comparisons.summaries.items()}
        return {"inputs": self.inputs, "notes": self.notes, "summary": summary, "rows": self.rows}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each record: measured and predicted seconds and bytes/s."""
        return [_row(one) for one in self.comparisons.compared]


def _row(row: Compared) -> dict[str, Any]:
    record = row.record
    return {
        "size_bytes": record.nbytes,
        "num_nodes": record.num_nodes or None,
        "ranks": record.ranks,
        "collective": record.collective,
        "library": record.library,
        "algorithm": record.algorithm,
        "protocol": record.protocol,
        "choice": row.choice,
        "measured_s": record.time_s,
        "spread": record.spread or None,
        "measured_busbw": record.busbw,
        "predicted_busbw": row.predicted_busbw,
        "predicted_s": row.predicted_s,
        "predicted_lo_s": row.lo_s,
        "predicted_hi_s": row.hi_s,
        "error": row.error,
        "set": row.set,
    }
