"""The calibrations that come with Ringside: which machines were measured, and by what name a user asks."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from sim.calibration import FAMILY, Calibration, CalibrationError, read_own

BOXES = {
    "HGX A100": ("dgx-a100", "abci-a100", "aws-p4d", "aws-p4de", "azure-ndv4"),
    "HGX H100": ("dgx-h100", "dgx-h200", "aws-p5", "azure-ndv5", "gcp-a3mega"),
    "HGX B200": ("dgx-b200", "gcp-a4"),
}
"""Machines that are alike inside a node, whoever sells them; what is between nodes belongs to the name."""


def folder() -> Path:
    """Where they lie, one file a machine."""
    return Path(str(files("sim.libraries.nccl.measured") / "shipped"))


def names() -> list[str]:
    """The machines that were measured."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


@cache
def shipped(machine: str) -> Calibration | None:
    """What is known of a machine, ``None`` if it was not measured."""
    path = folder() / f"{machine}.yaml"
    return read_own(path) if machine in names() else None


def why_not(machine: str) -> str:
    """Why nothing is calibrated on a machine, and whose calibration comes nearest."""
    boxes = [box for box in BOXES.values() if machine in box]
    near = [mate for box in boxes for mate in box if mate in names()]
    hint = f"; {FAMILY}{near[0]} has the same box" if near else ""
    return f"no measurement of {machine} is shipped{hint}"


def family(text: str) -> Calibration:
    """What ``family:NAME`` asks for."""
    name = text.removeprefix(FAMILY)
    found = shipped(name)
    if found is None:
        raise CalibrationError(f"no calibration of {name!r} is shipped; write one of {', '.join(names())}")
    return found
