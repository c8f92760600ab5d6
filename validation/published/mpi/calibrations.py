"""The shipped MPI calibrations, fitted to the published measurements.

``python -m ringside.validation.published.mpi.calibrations`` writes them.
"""

from ringside.sim.calibration import SHIPPED_MPI, Calibration
from ringside.sim.record import digest
from ringside.validation.mpi.fit import calibrate_mpi
from ringside.validation.mpi.observed import is_observable
from ringside.validation.published.calibrations import write_all
from ringside.validation.published.mpi import published_mpi

DATE = "2026-11-23"
"""When the data last changed."""


def calibrations() -> dict[str, Calibration]:
    """Return a calibration for every machine, from rows with a forced algorithm."""
    records = [record for record in published_mpi() if is_observable(record) and record.algorithm != "auto"]
    calibrations = {}
    for machine in sorted({record.cluster for record in records}):
        mine = [record for record in records if record.cluster == machine]
        calibrations[machine] = Calibration(
            cluster=machine,
            topology=machine,
            date=DATE,
            sources={"pico.csv": mine[0].source},
            fingerprint={},
            fits=(),
            used=tuple(sorted(digest(record) for record in mine)),
            mpi=calibrate_mpi(mine, machine, {}),
        )
    return calibrations


if __name__ == "__main__":
    write_all(calibrations(), SHIPPED_MPI)
