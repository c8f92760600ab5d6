"""Predictions beside measurements of collectives."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from ringside.sim.calibration import AUTO, find_calibration
from ringside.sim.libraries.nccl.bind import shipped_for
from ringside.sim.questions.fields import network_option
from ringside.sim.questions.question import option
from ringside.validation.compare import Compared, Summary, compare, summaries
from ringside.validation.measured.observed import is_of_nccl
from ringside.validation.questions.fields import ByCalibration, Measured


@dataclass(frozen=True, kw_only=True)
class Comparison(ByCalibration):
    """Predictions beside measurements of collectives: a row for each record."""

    schema: ClassVar[str] = "compare"

    network: str = network_option()
    pool_sites: bool = option("Pool records of several sites of one machine.", default=False)

    def ask(self) -> "Comparisons":
        """Predict every record; raise RecordError for records that cannot be compared."""
        measured = self.measured()
        cluster, given = measured.cluster, self.calibration
        calibration = find_calibration(given, cluster) if isinstance(given, str) else given
        basis = ""
        if calibration == AUTO and any(map(is_of_nccl, measured.records)):
            known, why = shipped_for(cluster, self.settings)
            basis = f"times of NCCL as measured ({known.cluster})" if known else f"not calibrated: {why}"
        compared = compare(
            measured.records, cluster, self.settings, calibration, network=self.network,
            pool_sites=self.pool_sites,
        )  # fmt: skip
        return Comparisons(
            question=self,
            measured=measured,
            compared=compared,
            notes=[
                *([f"machine: {cluster}, {measured.source}"] if self.cluster is None else []),
                *([basis] if basis else []),
                *([f"schedules played on the {self.network} network"] if self.network != "fifo" else []),
                *measured.fallbacks("predicted"),
            ],
            summaries=summaries(compared),
        )


@dataclass(frozen=True)
class Comparisons:
    """The answer.

    ``notes`` are where the machine's name is from and what the predictions rest on, a sentence each;
    ``summaries`` the errors of fitted, held-out and uncalibrated rows, kept apart.
    """

    question: Comparison
    measured: Measured
    compared: Sequence[Compared]
    notes: Sequence[str]
    summaries: Mapping[str, Summary]

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs() | {"cluster": self.measured.cluster}

    @property
    def content(self) -> dict[str, Any]:
        """Everything, in plain values."""
        summary = {name: asdict(one) for name, one in self.summaries.items()}
        return {"inputs": self.inputs, "notes": self.notes, "summary": summary, "rows": self.rows}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each record: measured and predicted seconds and bytes/s."""
        return [_row(one) for one in self.compared]


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
