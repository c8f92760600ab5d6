"""What ``--calibration`` and ``--anchor`` mean."""

from collections.abc import Mapping
from pathlib import Path

from sim import calibration as calibrations
from sim.calibration import Calibration, CalibrationError
from sim.libraries.nccl.graph.systems import SYSTEMS
from sim.libraries.nccl.measured.shipped import AUTO, FAMILY, NONE, family, shipped, why_not
from topologies.catalogue import split


def find_calibration(
    text: str, anchor: Path | None, cluster: str, values: Mapping[str, str]
) -> Calibration | str | None:
    """The calibration that the words ask for: ``auto`` stays, and each library has its own idea of it."""
    machine = split(cluster)[0]
    found: Calibration | str | None
    if text == NONE:
        found = None
    elif text == AUTO:
        found = AUTO
    elif text.startswith(FAMILY):
        found = family(text)
    else:
        found = _of_this(calibrations.read(Path(text)), text, machine)
    if anchor is None:
        return found
    if found == AUTO:
        found = shipped(machine)
    if not isinstance(found, Calibration):
        raise CalibrationError(f"nothing to scale by {anchor}: {why_not(machine)}; write --calibration")
    from validation.measured.anchor import anchored
    from validation.readers import read

    return anchored(found, read(anchor).records, machine, values)


def _of_this(found: Calibration, path: str, machine: str) -> Calibration:
    """The calibration of a file, which must not be of another known machine."""
    fitted = found.nccl.machine if found.nccl else machine
    if fitted != machine and {fitted, machine} <= set(SYSTEMS):
        raise CalibrationError(
            f"{path} is a calibration of {fitted}, not of {machine}; write --cluster {fitted}"
        )
    return found
