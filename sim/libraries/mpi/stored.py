"""A measured machine's MPI in a calibration file: readable figures, and a table as text."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ringside.sim.libraries.mpi.measured import PARAMETERS, MpiCorrection, MpiModel
from ringside.sim.libraries.mpi.rounds import ROUNDS


@dataclass(frozen=True, kw_only=True)
class StoredMpi:
    """A `MpiModel` in numbers and text.

    ``correction`` has a line per fitted row: collective, algorithm, ``alone`` on its node or ``shared``,
    base-2 logarithm of the largest message, residual and uncertainty. ``rows`` of ``versions``
    of MPI were fitted, on ``nodes`` with ``tasks`` each; the errors are of the fitted rows, and ``worst``
    names the worst.
    """

    machine: str
    rows: int
    versions: tuple[str, ...]
    nodes: tuple[int, ...]
    tasks: tuple[int, ...] = (1,)
    noise: float
    kept_MiB: float  # noqa: N815 (the unit is spelled so)
    median_error: float
    p90_error: float
    worst: tuple[str, ...]
    parameters: dict[str, float]
    correction: str = field(repr=False)

    def __post_init__(self) -> None:
        if set(self.parameters) != set(PARAMETERS):
            odd = sorted(set(self.parameters) ^ set(PARAMETERS))
            raise ValueError(f"parameters: {odd[0]} is missing or unknown; run calibrate again to write it")
        for name, value in {**self.parameters, "noise": self.noise, "kept_MiB": self.kept_MiB}.items():
            if not 0 < value < np.inf:
                raise ValueError(f"{name} is {value}; write a number above 0")
        for name, counts in {"nodes": self.nodes, "tasks": self.tasks}.items():
            if not counts or min(counts) < 1:
                raise ValueError(f"{name} must be 1 or more; run calibrate again to write the file")
        _ = self.model  # which refuses a table that cannot be read

    @property
    def described(self) -> str:
        """A description, for notes of answers that rest on it."""
        nodes = f"{', '.join(map(str, self.nodes))} node{'s' if self.nodes != (1,) else ''}"
        return f"{self.machine}: {self.rows} rows of {', '.join(self.versions)} on {nodes}"

    @cached_property
    def model(self) -> MpiModel:
        """The model that predicts; it caches its results."""
        values = {name: self.parameters[name] for name in PARAMETERS} | {"kept_MiB": self.kept_MiB}
        return MpiModel(values, self._correction(), self.noise, self.nodes, self.tasks)

    def _correction(self) -> MpiCorrection:
        try:
            lines = [line.split() for line in self.correction.splitlines()]
            ways = tuple((line[0], line[1], line[2]) for line in lines)
            figures = np.array([line[3:] for line in lines], dtype=np.float64).reshape(len(lines), 3)
        except (ValueError, IndexError):
            raise ValueError("correction cannot be read; run calibrate again to write it") from None
        for kind, algorithm, place in ways:
            if place not in ("alone", "shared") or algorithm not in ROUNDS.get(kind, {}):
                raise ValueError(f"correction: unknown MPI method {kind} {algorithm} {place}; remove it")
        if not np.all(np.isfinite(figures)) or np.any(figures[:, 2] <= 0):
            raise ValueError("correction has an invalid figure; run calibrate again to write it")
        return MpiCorrection(ways, *figures.T)


def correction_lines(correction: MpiCorrection) -> str:
    """Return the table of a correction."""
    columns = correction.way, correction.message, correction.left, correction.sigma
    return "".join(
        f"{' '.join(way)} {message:.4f} {left:.4f} {sigma:.4g}\n"
        for way, message, left, sigma in zip(*columns, strict=True)
    )
