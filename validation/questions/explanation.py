"""Why a log's bus bandwidth is low."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ringside.sim.calibration import AUTO, Calibration, find_calibration, shipped, why_not
from ringside.sim.record import RecordError
from ringside.topologies.catalogue import split
from ringside.topologies.load import in_catalogue
from ringside.validation.explain.nccl import NcclFamily
from ringside.validation.explain.schedules import ScheduleFamily
from ringside.validation.explain.verdict import Family, Verdict, judge
from ringside.validation.machines import check_one_cluster
from ringside.validation.measured.observed import is_of_nccl
from ringside.validation.questions.fields import ByCalibration, Measured


@dataclass(frozen=True, kw_only=True)
class Explanation(ByCalibration):
    """Why a log's bus bandwidth is low: which cause fits its rows, and what to try."""

    schema: ClassVar[str] = "explain"

    def ask(self) -> "Explained":
        """Try every cause; raise RecordError where nothing is known to compare with."""
        measured = self.measured()
        records, cluster = measured.records, measured.cluster
        check_one_cluster(records, cluster, pool_sites=False)
        given, machine = self.calibration, in_catalogue(cluster)
        calibration = find_calibration(given, cluster) if isinstance(given, str) else given
        calibration = shipped(machine) if calibration == AUTO else calibration
        if not isinstance(calibration, Calibration):
            raise RecordError(f"nothing to lay the log beside: {why_not(machine)}; write `calibration`")
        family: Family
        if calibration.nccl and any(map(is_of_nccl, records)):
            fitted = calibration.settings_on(cluster)
            family = NcclFamily(
                measured.ran, split(cluster)[0], self.settings, calibration.nccl.model, fitted
            )
        else:
            family = ScheduleFamily(measured.ran, cluster, self.settings, calibration)
        described = (
            calibration.nccl.described if calibration.nccl else f"the calibration of {calibration.cluster}"
        )
        return Explained(measured, judge(family), described)


@dataclass(frozen=True, slots=True)
class Explained:
    """The answer: the verdict on what was measured, beside the measurements of ``family``."""

    measured: Measured
    verdict: Verdict
    family: str

    @property
    def notes(self) -> Sequence[str]:
        """Where NCCL could not do as told, a sentence each."""
        return self.measured.fallbacks("explained")
