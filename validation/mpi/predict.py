"""MPI's model of measured rows."""

from collections.abc import Iterator, Mapping, Sequence

from ringside.sim.calibration import Calibration, CalibrationError
from ringside.sim.libraries.laws import check_band
from ringside.sim.libraries.mpi.form import time_us, work_of
from ringside.sim.libraries.mpi.measured import expected
from ringside.sim.record import Record, RecordError
from ringside.validation.mpi.observed import is_observable, observed


def predictions(
    records: Sequence[Record], cluster: str, settings: Mapping[str, str], calibration: Calibration | None
) -> Iterator[tuple[float, float, float]]:
    """Yield the seconds of each record and the ends of its band, calibrated or with default parameters."""
    if calibration and calibration.mpi is None:
        raise CalibrationError(
            f"the calibration of {calibration.cluster} has nothing of MPI; write --calibration none"
        )
    for record in records:
        if not is_observable(record):
            raise RecordError(
                f"mpi has no form for {record.algorithm} {record.collective} of {record.nbytes} B on "
                f"{record.ranks} ranks; leave such rows out"
            )
    tasks = [row.task for row in observed(records, cluster, settings)]
    if calibration and calibration.mpi:
        before = [row.task for row in observed(records, cluster, calibration.settings_on(cluster))]
        times = calibration.mpi.model.scaled_seconds(tasks, before)
    else:
        times = (time_us(work_of(tasks), expected()) * 1e-6,) * 3
    for record, *ends in zip(records, *times, strict=True):
        middle, low, high = map(float, ends)
        check_band(f"{record.algorithm} {record.collective} of {record.nbytes} B", low, middle, high)
        yield middle, low, high
