"""A user's own measurements that scale a machine's calibration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ringside.sim.calibration import Calibration


@dataclass(frozen=True, slots=True)
class Anchor:
    """Measurements read from ``path``.

    ``scale`` returns a calibration scaled by them, for a machine by name with its changed settings.
    """

    path: Path
    scale: Callable[[Calibration, str, Mapping[str, str]], Calibration]

    def __str__(self) -> str:
        return str(self.path)
