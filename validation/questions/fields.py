"""Common fields of questions about measurements, and their parsed values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringside.sim.calibration import Calibration
from ringside.sim.questions.calibrated import calibration_option
from ringside.sim.questions.fields import files_argument
from ringside.sim.questions.question import Question, option, settings_option
from ringside.validation.measurements import Measurements, read_measurements


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
