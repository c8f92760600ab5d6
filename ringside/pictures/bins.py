"""Stretches of time too short to be seen, as what they fill of columns that can be."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Stretch = tuple[float, float]
Floats = NDArray[np.float64]

COLUMNS = 300
"""As many columns of a picture as are seen apart at the width of a page."""


def occupied(stretches: Sequence[Stretch], edges: Floats) -> Floats:
    """Seconds of stretches, of overlapping ones the sum, between each edge and the next."""
    starts, ends = (np.sort(side) for side in np.array(stretches, dtype=float).reshape(-1, 2).T)
    found: Floats = np.diff(_since(starts, edges) - _since(ends, edges))
    return np.clip(found, 0.0, None)


def _since(points: Floats, edges: Floats) -> Floats:
    """Seconds from all points that have passed by each edge."""
    count = np.searchsorted(points, edges)
    past: Floats = count * edges - np.concatenate([[0.0], np.cumsum(points)])[count]
    return past


def prevailing(parts: Iterable[Sequence[Stretch]], edges: Floats) -> list[list[Stretch]]:
    """Each part as the columns that it fills more than any other part and more than nobody does.

    Columns beside one another are one stretch.
    """
    filled = np.array([occupied(part, edges) for part in parts]).reshape(-1, len(edges) - 1)
    idle = np.clip(np.diff(edges) - filled.sum(axis=0), 0.0, None)
    winner = np.argmax(np.vstack([idle, filled]), axis=0)
    first = np.flatnonzero(np.diff(winner, prepend=-1))
    last = np.append(first[1:], len(winner))
    runs = zip(winner[first].tolist(), edges[first].tolist(), edges[last].tolist(), strict=True)
    found: list[list[Stretch]] = [[] for _ in filled]
    for part, start, end in runs:
        if part:
            found[part - 1].append((start, end))
    return found
