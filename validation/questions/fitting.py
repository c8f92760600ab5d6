"""A cluster's parameters, fitted to measurements."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ringside.sim.calibration import Calibration
from ringside.sim.questions.question import option
from ringside.validation.measurements import Measurements
from ringside.validation.questions.fields import OfRecords


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
class FittingAnswer:
    """The answer: a calibration fitted to the measurements."""

    question: Fitting
    measured: Measurements
    calibration: Calibration

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
