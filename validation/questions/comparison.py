"""Predictions beside measurements of collectives."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from ringside.sim.calibration import Calibration
from ringside.sim.questions.calibrated import Anchor, anchor_option, scaled
from ringside.sim.questions.fields import network_option
from ringside.sim.questions.question import option
from ringside.validation.compare import Compared, Comparisons, compare_measurements
from ringside.validation.measurements import Measurements
from ringside.validation.nccl.anchor import with_rows_of
from ringside.validation.questions.fields import ByCalibration


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
        return ComparisonAnswer(self, measured, comparisons, [note for note in notes if note])


@dataclass(frozen=True)
class ComparisonAnswer:
    """The answer: a row for each record, and the errors of each set of rows.

    ``notes`` name the evidence for the machine and the source of the predictions, a sentence each.
    """

    question: Comparison
    measured: Measurements
    comparisons: Comparisons
    notes: Sequence[str]

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
