"""MPI's calibrations that are shipped, made from the published measurements.

``python -m validation.published.mpi.calibrations`` writes them.
"""

from pathlib import Path

from sim.calibration import SHIPPED_MPI, Calibration
from sim.record import digest
from validation.mpi.calibrate import calibrate_mpi
from validation.mpi.observed import is_observable
from validation.published.mpi import published_mpi

DATE = "2026-11-22"
"""When the data were last added to."""


def calibrations() -> dict[str, Calibration]:
    """A calibration for every machine, of the rows whose algorithm was forced."""
    records = [record for record in published_mpi() if is_observable(record) and record.algorithm != "auto"]
    found = {}
    for machine in sorted({record.cluster for record in records}):
        mine = [record for record in records if record.cluster == machine]
        found[machine] = Calibration(
            cluster=machine,
            topology=machine,
            date=DATE,
            sources={"pico.csv": mine[0].source},
            fingerprint={},
            fits=(),
            used=tuple(sorted(digest(record) for record in mine)),
            mpi=calibrate_mpi(mine, machine, {}),
        )
    return found


def main(where: Path | None = None) -> None:
    """Write one file a machine."""
    for machine, found in calibrations().items():
        path = (where or SHIPPED_MPI) / f"{machine}.yaml"
        path.parent.mkdir(exist_ok=True)
        found.write(path)
        print(path.name, found.mpi.described if found.mpi else "")


if __name__ == "__main__":
    main()
