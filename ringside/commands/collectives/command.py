"""``ringside collectives``: every collective by every algorithm of every library, proved or refused."""

from itertools import groupby
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.sim.collective import KINDS
from ringside.sim.libraries.coverage import Cell, algorithms_of, coverage
from ringside.sim.libraries.find import LIBRARIES, Options, find_library
from ringside.topologies.placement import EVEN, placement_told
from ringside.topologies.words import one_of


def command(
    cluster: Annotated[
        str, typer.Option(metavar="NAME[:COUNT]|FILE", help="On which each is asked for.")
    ] = "dgx-h100:2",
    ranks: options.Ranks = None,
    placement: options.Placement = EVEN,
    library: Annotated[
        str | None,
        typer.Option(metavar=options.choices(LIBRARIES), show_default="all", help="One of them alone."),
    ] = None,
    prove: Annotated[
        int, typer.Option(min=0, max=64, help="Prove ideal's and gloo's schedules for 1 to so many ranks.")
    ] = 16,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """List which library supports which collective by which algorithm, and which are proved."""
    if library is not None and library not in LIBRARIES:
        raise ValueError(f"{library!r} is no known library; write {one_of(LIBRARIES, library)}")
    run(cluster, ranks, placement, (library,) if library else LIBRARIES, prove, as_json=json)


def run(
    cluster: str, ranks: int | None, placement: str, libraries: tuple[str, ...], prove: int, *, as_json: bool
) -> None:
    """Ask for each and print a table for each library."""
    cells = []
    count = len(KINDS) * sum(len(algorithms_of(name)) for name in libraries)
    with console.simulating("proving", count) as bar:
        # refuses a cluster, or ranks, that there are not
        placed = find_library("ideal", cluster, ranks=ranks, options=Options(placement=placement)).placed
        for cell in coverage(cluster, ranks, libraries, prove, placement):
            cells.append(cell)
            bar.done(f"{cell.library} {cell.algorithm} {cell.collective}")
    inputs = {
        "cluster": cluster, "ranks": ranks, "placement": placement, "libraries": list(libraries),
        "prove": prove,
    }  # fmt: skip
    if as_json:
        console.print_json("collectives", {"inputs": inputs, "rows": [_row(cell) for cell in cells]})
        return
    console.print_comments(placement_told(ranks, placement, placed))
    for library, some in groupby(cells, key=lambda cell: cell.library):
        _show(library, list(some))
    console.print_comments(["proved for so many ranks; - is refused by name, and --json has each reason"])


def _show(library: str, cells: list[Cell]) -> None:
    refusals = {cell.refused for cell in cells}
    if len(refusals) == 1 and "" not in refusals:
        console.print_comments([f"{library}: {refusals.pop()}"])
        return
    rows = [
        (algorithm, *(_text(cell) for cell in some))
        for algorithm, some in groupby(cells, key=lambda cell: cell.algorithm)
    ]
    if len(rows) > 1:
        console.print_table([library], [("algorithm", ""), *map(_two_lines, KINDS)], rows)
    else:
        (algorithm, *texts), heads = rows[0], (("collective", ""), ("algorithm", "(ranks)"))
        console.print_table([f"{library}, {algorithm}"], heads, list(zip(KINDS, texts, strict=True)))


def _two_lines(kind: str) -> tuple[str, str]:
    """A collective's name as a narrow head."""
    first, _, last = kind.rpartition("_")
    return (f"{first}_", last) if first else (kind, "")


def _text(cell: Cell) -> str:
    """For how many ranks it is proved, and by what where that is not what was asked for."""
    if cell.refused:
        return "-"
    other = cell.taken if cell.taken.partition(":")[0] != cell.algorithm else ""
    first, last = cell.proved or (0, 0)
    proved = f"{first}-{last}" if first < last else str(last) if last else "yes"
    return f"{other} {proved}".strip()


def _row(cell: Cell) -> dict[str, Any]:
    row = {"library": cell.library, "algorithm": cell.algorithm, "collective": cell.collective}
    if cell.refused:
        return row | {"refused": cell.refused}
    return row | {"taken": cell.taken, "proved_ranks": list(cell.proved) if cell.proved else None}
