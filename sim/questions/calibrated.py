"""Fields of the measurements that a question uses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside.sim.calibration import (
    AUTO,
    FAMILY,
    NONE,
    Calibration,
    CalibrationError,
    bare,
    find_calibration,
    shipped,
    why_not,
)
from ringside.sim.questions.question import choices, option
from ringside.topologies.catalogue import split
from ringside.topologies.load import parse_name


@dataclass(frozen=True, slots=True)
class Anchor:
    """Measurements read from ``path``.

    ``scale`` returns a calibration scaled by them, for a machine by name with its changed settings. A table
    has bandwidths by number of nodes instead of a log's rows.
    """

    path: Path
    scale: Callable[[Calibration, str, Mapping[str, str]], Calibration]
    is_table: bool = False

    def __str__(self) -> str:
        return str(self.path)


def calibration_option() -> Any:
    """Define a field of a calibration, which `scaled` reads."""
    return option(
        "Measurements to use: the shipped ones of the machine, none, another's, or your own.",
        metavar=choices((AUTO, NONE, f"{FAMILY}NAME", "FILE")), default=AUTO,
    )  # fmt: skip


def anchor_option() -> Any:
    """Define a field of a site's own measurements."""
    return option(
        "A log of your own site, or its bus bandwidths by nodes, which scales the calibration.",
        metavar="LOG|TABLE",
        default=None,
        parse="anchor",
    )


def scaled(
    given: Calibration | str | None, anchor: Anchor | None, cluster: str, settings: Mapping[str, str]
) -> Calibration | str | None:
    """Return a calibration, scaled where there is an anchor; raise CalibrationError for none to scale."""
    calibration = find_calibration(given, cluster)
    if anchor is None:
        return calibration
    machine = parse_name(cluster).machine
    known = shipped(machine) if calibration == AUTO else calibration
    if anchor.is_table and not isinstance(known, Calibration):
        known = bare(machine)
    if not isinstance(known, Calibration):
        raise CalibrationError(
            f"no calibration to scale by {anchor.path}: {why_not(machine)}; write `calibration`"
        )
    return anchor.scale(known, split(cluster)[0], settings)
