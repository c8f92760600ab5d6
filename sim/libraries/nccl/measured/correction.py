"""What the physical form leaves: a Gaussian process in log time over message size and channels.

Two tasks are alike that run by the same pair, both inside one node or both across several, with messages
and channels of about the same number. The mean tends to zero away from what was measured.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.libraries.nccl.measured.work import Work

Floats = NDArray[np.float64]

AMPLITUDE = 0.2
"""Standard deviation of log time that the form is expected to leave."""

MESSAGE_OCTAVES = 0.8
CHANNEL_OCTAVES = 1.0
"""How far alike reaches."""

_ROBUST = 2.0
"""A row so many standard deviations off counts less."""

_ROUNDS = 8


@dataclass(frozen=True, eq=False)
class Correction:
    """Rows that were fitted: where they lie, what the form left of them, how sure each was.

    ``way`` tells pair and scale apart, ``message`` and ``channels`` are base-2 logarithms, ``left`` and
    ``sigma`` natural ones.
    """

    way: NDArray[np.int64]
    message: Floats
    channels: Floats
    left: Floats
    sigma: Floats

    def predict(self, work: Work) -> tuple[Floats, Floats]:
        """Mean and standard deviation of log time, a figure a task."""
        if not len(self.way):
            return np.zeros(len(work)), np.full(len(work), AMPLITUDE)
        mine = _alike(_place(work), (self.way, self.message, self.channels))
        weights = self._inverse @ mine.T
        mean: Floats = self.left @ weights
        variance: Floats = AMPLITUDE**2 - np.sum(mine * weights.T, axis=1)
        return mean, np.sqrt(np.maximum(variance, 0.0))

    @cached_property
    def _inverse(self) -> Floats:
        place = self.way, self.message, self.channels
        found: Floats = np.linalg.inv(_alike(place, place) + np.diag(self.sigma**2)).astype(np.float64)
        return found


def corrected(work: Work, left: Floats, sigma: Floats) -> Correction:
    """The correction for what the form ``left`` of each row; rows far off the others count less."""
    place, widened = _place(work), sigma
    alike = _alike(place, place)
    for _ in range(_ROUNDS):
        mean = alike @ np.linalg.solve(alike + np.diag(widened**2), left)
        weight = 1 / np.sqrt(1 + ((left - mean) / sigma / _ROBUST) ** 2)
        widened = sigma / np.sqrt(weight)
    return Correction(*place, left, widened)


Place = tuple[NDArray[np.int64], Floats, Floats]


def _place(work: Work) -> Place:
    return 2 * work.pair + work.one, np.log2(np.maximum(work.message, 1.0)), np.log2(work.channels)


def _alike(a: Place, b: Place) -> Floats:
    same = a[0][:, None] == b[0][None, :]
    message = (a[1][:, None] - b[1][None, :]) / MESSAGE_OCTAVES
    channels = (a[2][:, None] - b[2][None, :]) / CHANNEL_OCTAVES
    found: Floats = AMPLITUDE**2 * same * np.exp(-0.5 * (message**2 + channels**2))
    return found
