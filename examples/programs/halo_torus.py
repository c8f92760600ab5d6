"""A halo exchange on a torus of two rows, in rows first and then in columns."""


def main(dist):
    """Edges of a row are larger than those of a column."""
    rank, columns = dist.get_rank(), dist.get_world_size() // 2
    row, column = divmod(rank, columns)
    across, along = (1 - row) * columns + column, row * columns + (column + 1) % columns
    back = row * columns + (column - 1) % columns
    for _ in range(3):
        dist.compute(0.015)
        works = [dist.irecv(2 * MiB, back), dist.isend(2 * MiB, along)]
        for work in works:
            work.wait()
        works = [dist.irecv(1 * MiB, across), dist.isend(1 * MiB, across)]
        for work in works:
            work.wait()
