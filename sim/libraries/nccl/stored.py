"""A measured model in a calibration file: readable figures, and two tables as text."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.gaussian import EIGHTY
from ringside.sim.libraries.nccl.communicator import SiteFacts
from ringside.sim.libraries.nccl.measured import (
    DEVIATIONS,
    Correction,
    MeasuredModel,
    SiteAnchor,
    Traits,
)
from ringside.sim.libraries.nccl.message_times import PAIRS, PARAMETERS, Task
from ringside.sim.libraries.nccl.send_times import SEND_PARAMETERS

Floats = NDArray[np.float64]

_MANY = 4
"""From this number of machines on a description counts them."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A `MeasuredModel` in numbers and text.

    ``parameters`` gives each parameter's value and the ends of its 80 % interval. ``correlations``
    has a line for each parameter that the rows inform: its name, and its row of the
    correlations' Cholesky factor. ``correction`` has a line per fitted row: algorithm, protocol, 1 for
    a single node, base-2 logarithms of message, channels and GPUs per node, residual and uncertainty.

    ``rows`` of ``sites`` were fitted, made by ``releases`` of NCCL; the errors are of the fitted rows, and
    ``worst`` names the worst. ``left_prior`` are parameters that the rows moved beyond their priors.
    ``network`` are the machines that inform the parameters between nodes, where no row of several nodes does.
    ``anchor`` has a line for each row of a user's own site: as ``correction``, with base-2 logarithm of the
    bytes and shares of latency and bandwidth before the residual, and the slope in each parameter at the end.
    """

    machine: str
    rows: int
    sites: tuple[str, ...]
    releases: tuple[str, ...]
    nodes: tuple[int, ...]
    pooled: bool
    facts: SiteFacts
    noise: float
    median_error: float
    p90_error: float
    worst: tuple[str, ...]
    left_prior: tuple[str, ...]
    parameters: dict[str, tuple[float, float, float]]
    correlations: str = field(repr=False)
    correction: str = field(repr=False)
    anchor: str = ""
    network: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if set(self.parameters) != set(self.names):
            odd = sorted(set(self.parameters) ^ set(self.names))
            raise ValueError(f"parameters: {odd[0]} is missing or unknown; run calibrate again to write it")
        for name, (value, low, high) in self.parameters.items():
            if not 0 < low <= value <= high < np.inf:
                raise ValueError(
                    f"{name} is {value} from {low} to {high}; write three rising numbers above 0"
                )
        if not 0 < self.noise < np.inf or not self.nodes or min(self.nodes) < 1:
            raise ValueError("noise and nodes must be above 0; run calibrate again to write it")
        _ = self.model  # which refuses tables that cannot be read

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters in order: of sends and receives, or of NCCL's other collectives."""
        return SEND_PARAMETERS if SEND_PARAMETERS[-1] in self.parameters else PARAMETERS

    @property
    def described(self) -> str:
        """A description, for notes of answers that rest on it."""
        if not self.rows:
            return f"no row of {self.machine}: what the sends of other machines have in common"
        nodes = f"{', '.join(map(str, self.nodes))} node{'s' if self.nodes != (1,) else ''}"
        known = len(self.anchor.splitlines())
        anchored = f", scaled by {known} row{'s' if known > 1 else ''} of this site" if known else ""
        others = ", ".join(self.network) if len(self.network) < _MANY else f"{len(self.network)} machines"
        between = f"; between nodes as {others} on the same network" if self.network else ""
        return f"{self.machine}: {self.rows} rows of {', '.join(self.sites)} on {nodes}{anchored}{between}"

    def anchored(self, tasks: Sequence[Task], seconds: Sequence[float]) -> "Stored":
        """Return the model scaled to a site by rows that were measured there."""
        anchor = self.model.anchored(tasks, seconds).anchor
        assert anchor
        (ways, where), traits = anchor.place, anchor.traits
        columns = *where, traits.size, *traits.shares.T, anchor.left, anchor.sigma, *anchor.slopes
        lines = [
            f"{' '.join(PAIRS[way // 2])} {way % 2} {' '.join(f'{figure:.4g}' for figure in row)}\n"
            for way, *row in zip(ways, *columns, strict=True)
        ]
        return replace(self, anchor="".join(lines))

    @cached_property
    def model(self) -> MeasuredModel:
        """The model that predicts; it caches its results."""
        return MeasuredModel(
            {name: self.parameters[name][0] for name in self.names},
            self._covariance(),
            self._correction(),
            self.facts,
            self.noise,
            self.nodes,
            self.pooled,
            self._anchor(),
        )

    def _anchor(self) -> SiteAnchor | None:
        if not self.anchor:
            return None
        try:
            ways, figures = _table(self.anchor)
            where, (size, *shares) = figures[:3], figures[3 : 4 + DEVIATIONS]
            left, sigma, *slopes = figures[4 + DEVIATIONS :]
            if len(slopes) != len(self.names):
                raise ValueError
            traits = Traits(ways // 2, size, np.column_stack(shares))
            return SiteAnchor(traits, (ways, where), np.array(slopes), left, sigma)
        except (ValueError, IndexError):
            raise ValueError("anchor cannot be read; run calibrate again to write it") from None

    def _covariance(self) -> Floats:
        lines = [line.split() for line in self.correlations.splitlines()]
        factor = np.eye(len(self.names))
        try:
            known = [self.names.index(name) for name, *_ in lines]
            for place, (_, *figures) in zip(known, lines, strict=True):
                factor[place, known[: len(figures)]] = np.array(figures, dtype=np.float64)
        except (ValueError, IndexError):
            raise ValueError("correlations cannot be read; run calibrate again to write it") from None
        ends = np.array([self.parameters[name][1:] for name in self.names])
        sigma = np.log(ends[:, 1] / ends[:, 0]) / (2 * EIGHTY)
        factor *= sigma[:, None]
        covariance: Floats = factor @ factor.T
        return covariance

    def _correction(self) -> Correction:
        if not self.correction:
            return Correction(np.zeros(0, np.int64), np.zeros((3, 0)), np.zeros(0), np.zeros(0))
        try:
            ways, figures = _table(self.correction)
            left, sigma = figures[3:]
        except (ValueError, IndexError):
            raise ValueError("correction cannot be read; run calibrate again to write it") from None
        return Correction(ways, figures[:3], left, sigma)


def _table(text: str) -> tuple[NDArray[np.int64], Floats]:
    """Return the pair and scale of each line, and its figures by column."""
    lines = [line.split() for line in text.splitlines()]
    ways = [2 * PAIRS.index((line[0], line[1])) + int(line[2]) for line in lines]
    return np.array(ways, dtype=np.int64), np.array([line[3:] for line in lines], dtype=np.float64).T


def interval(value: float, sigma: float) -> tuple[float, float, float]:
    """Return a value and the ends of its 80 % interval, with a file's number of digits."""
    factor = float(np.exp(EIGHTY * sigma))
    low, middle, high = (float(f"{end:.5g}") for end in (value / factor, value, value * factor))
    return middle, min(low, middle), max(high, middle)


def correlations(names: Sequence[str], covariance: Floats) -> str:
    """Return the table of the named parameters; each is in the covariance."""
    sigma = np.sqrt(np.diag(covariance))
    factor = np.linalg.cholesky(covariance / np.outer(sigma, sigma))
    lines = [[name, *(f"{entry:.4g}" for entry in row[: place + 1])]
             for place, (name, row) in enumerate(zip(names, factor, strict=True))]  # fmt: skip
    return "".join(" ".join(line) + "\n" for line in lines)


def correction_lines(correction: Correction) -> str:
    """Return the table of a correction."""
    rows = zip(correction.way, *correction.where, correction.left, correction.sigma, strict=True)
    return "".join(
        f"{' '.join(PAIRS[way // 2])} {way % 2} {' '.join(f'{figure:.4f}' for figure in row)} {sigma:.4g}\n"
        for way, *row, sigma in rows
    )
