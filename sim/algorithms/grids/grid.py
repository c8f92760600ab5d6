"""Ranks as rows and columns, for algorithms that work along one and then along the other."""

from math import isqrt
from typing import Any

import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.steps import Ints

Grid = tuple[int, int]
"""Rows and columns; rank r is in row ``r // columns``."""


def read(text: str) -> dict[str, Any]:
    """Parse a grid such as ``4x8``."""
    sides = text.split("x")
    if len(sides) != 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise ValueError(f"{text!r} is not a grid; write rows x columns, for example 4x8")
    return {"grid": (int(sides[0]), int(sides[1]))}


def squarest(ranks: int) -> Grid:
    """Return the factors closest to each other, the smaller first."""
    rows = next(rows for rows in range(isqrt(ranks), 0, -1) if ranks % rows == 0)
    return rows, ranks // rows


def grid_of(collective: Collective, grid: Grid | None) -> Grid:
    """Return the requested grid, if it has one place per rank; the default is the squarest one."""
    rows, columns = grid or squarest(collective.ranks)
    if rows < 1 or columns < 1 or rows * columns != collective.ranks:
        one, other = squarest(collective.ranks)
        raise ValueError(
            f"{rows}x{columns} is not a grid of {collective.ranks} ranks; write rows x columns that multiply "
            f"to {collective.ranks}, for example {one}x{other}"
        )
    return rows, columns


def ranks_of(grid: Grid) -> Ints:
    """Return the rank in each row and column."""
    return np.arange(grid[0] * grid[1]).reshape(grid)
