"""``--calibration`` and ``--anchor``: a calibration, scaled by rows of the user's own site."""

from collections.abc import Mapping
from pathlib import Path

from ringside.sim.calibration import AUTO, Calibration, CalibrationError, find_calibration, shipped, why_not
from ringside.topologies.catalogue import split
from ringside.topologies.load import in_catalogue


def calibration_of(
    text: str, log: Path | None, cluster: str, values: Mapping[str, str]
) -> Calibration | str | None:
    """Find a calibration as `find_calibration` does, scaled where a log has measured the cluster.

    Raise CalibrationError without a calibration to scale.
    """
    calibration = find_calibration(text, cluster)
    return calibration if log is None else _scaled(calibration, log, cluster, values)


def _scaled(
    calibration: Calibration | str | None, log: Path, cluster: str, values: Mapping[str, str]
) -> Calibration:
    from ringside.validation.measured.anchor import anchored
    from ringside.validation.readers import read

    machine = split(cluster)[0]
    known = in_catalogue(cluster)
    base = shipped(known) if calibration == AUTO else calibration
    if not isinstance(base, Calibration):
        raise CalibrationError(f"nothing to scale by {log}: {why_not(known)}; write --calibration")
    return anchored(base, read(log).records, machine, values)
