"""Rings in two directions: along the rows of a grid of ranks, then along its columns, and back.

A reduce-scatter in each row, an all-reduce of the sums in each column, an all-gather in each row: R x C ranks
take 2 (C-1) (alpha + S/C beta) + 2 (R-1) (alpha + S/(R C) beta), far fewer steps than one ring (Mikami et
al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", arXiv 1811.05233, 2018).
"""

from collections.abc import Iterator

from ringside.sim.algorithms.grids.grid import Grid, grid_of, ranks_of
from ringside.sim.algorithms.rings import ring
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step


def all_reduce(collective: Collective, grid: Grid | None = None) -> Schedule:
    """Run rings along rows and columns; a grid of one row or column is the ring."""
    rows, columns = grid = grid_of(collective, grid)
    if 1 in grid:
        return ring.all_reduce(collective)
    rank = ranks_of(grid).ravel()
    row, column = rank // columns, rank % columns
    right, below = row * columns + (column + 1) % columns, (row + 1) % rows * columns + column

    def steps() -> Iterator[Step]:
        for number in range(columns - 1):
            yield step(rank, right, (column - number) % columns * rows, span=rows, reduce=True)
        summed = (column + 1) % columns
        for number in range(2 * (rows - 1)):
            yield step(rank, below, summed * rows + (row - number) % rows, reduce=number < rows - 1)
        for number in range(columns - 1):
            yield step(rank, right, (summed - number) % columns * rows, span=rows, reduce=False)

    return Schedule(collective, f"ring_2d:{rows}x{columns}", even_chunks(collective, rows * columns), steps)


BUILDS = {"all_reduce": all_reduce}
