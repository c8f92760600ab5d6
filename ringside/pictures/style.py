"""The one style of all pictures: ticks and bins of time, and files."""

from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from ringside.topologies.disk import write_file
from ringside.topologies.units import format_duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("house.mplstyle")


def save(figure: "Figure", path: Path) -> None:
    """Write the picture, atomically, in the format of the name's ending."""
    drawn = BytesIO()
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(drawn, format=path.suffix.removeprefix("."), metadata=metadata)
    write_file(path, drawn.getvalue())


Stretch = tuple[float, float]
Floats = NDArray[np.float64]

COLUMNS = 300
"""The number of columns of a picture that are distinguishable at the width of a page."""


def occupied(stretches: Sequence[Stretch], edges: Floats) -> Floats:
    """Return the seconds of intervals, summed where they overlap, between each edge and the next."""
    starts, ends = (np.sort(side) for side in np.array(stretches, dtype=float).reshape(-1, 2).T)
    seconds: Floats = np.diff(_since(starts, edges) - _since(ends, edges))
    return np.clip(seconds, 0.0, None)


def _since(points: Floats, edges: Floats) -> Floats:
    """Return the total seconds since all earlier points, at each edge."""
    count = np.searchsorted(points, edges)
    past: Floats = count * edges - np.concatenate([[0.0], np.cumsum(points)])[count]
    return past


def prevailing(parts: Iterable[Sequence[Stretch]], edges: Floats) -> list[list[Stretch]]:
    """Return for each part the columns in which it takes more time than any other part or idling.

    Adjacent columns are one interval.
    """
    filled = np.array([occupied(part, edges) for part in parts]).reshape(-1, len(edges) - 1)
    idle = np.clip(np.diff(edges) - filled.sum(axis=0), 0.0, None)
    winner = np.argmax(np.vstack([idle, filled]), axis=0)
    first = np.flatnonzero(np.diff(winner, prepend=-1))
    last = np.append(first[1:], len(winner))
    intervals = zip(winner[first].tolist(), edges[first].tolist(), edges[last].tolist(), strict=True)
    runs: list[list[Stretch]] = [[] for _ in filled]
    for part, start, end in intervals:
        if part:
            runs[part - 1].append((start, end))
    return runs


DURATIONS = FuncFormatter(lambda seconds, _: format_duration(seconds, 3))
"""Labels of an axis in seconds: 20 us."""
