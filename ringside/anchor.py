"""What ``--anchor`` means: a calibration scaled by rows of one's own site."""

from collections.abc import Mapping
from pathlib import Path

from sim.calibration import AUTO, Calibration, CalibrationError, shipped, why_not
from topologies.catalogue import split
from validation.measured.anchor import anchored
from validation.readers import read


def scaled(
    calibration: Calibration | str | None, log: Path, cluster: str, values: Mapping[str, str]
) -> Calibration:
    """The calibration, or that which ``auto`` means, scaled by what a log measured on the cluster."""
    machine = split(cluster)[0]
    found = shipped(machine) if calibration == AUTO else calibration
    if not isinstance(found, Calibration):
        raise CalibrationError(f"nothing to scale by {log}: {why_not(machine)}; write --calibration")
    return anchored(found, read(log).records, machine, values)
