"""``ringside collectives``: what each library supports, and which schedules are proved."""

from itertools import groupby

from ringside import console, options
from ringside.options import asks
from ringside.sim.collective import KINDS
from ringside.sim.libraries.coverage import CoverageCell
from ringside.sim.questions.coverage import Coverage


@asks(Coverage)
def command(question: Coverage, all_columns: options.All = False, json: options.Json = False) -> None:
    """List which library supports which collective by which algorithm, and which are proved."""
    with console.simulating("proving", question.count) as bar:
        answer = question.ask(
            on_cell=lambda cell: bar.done(f"{cell.library} {cell.algorithm} {cell.collective}")
        )
    if json:
        console.print_json("collectives", {"inputs": answer.inputs, "rows": answer.rows})
        return
    parts = [
        _part(library, list(some)) for library, some in groupby(answer.cells, key=lambda cell: cell.library)
    ]
    legend = "numbers: ranks for which it is proved; -: unsupported, --json has the reason"
    console.print_answer(answer.headline, *parts, rests_on=[legend], notes=answer.notes)


def _part(library: str, cells: list[CoverageCell]) -> console.TextTable:
    refusals = {cell.refused for cell in cells}
    if len(refusals) == 1 and "" not in refusals:
        return console.TextTable((), (), f"{library}: {refusals.pop()}")
    rows = [
        (algorithm, *(_text(cell) for cell in some))
        for algorithm, some in groupby(cells, key=lambda cell: cell.algorithm)
    ]
    if len(rows) > 1:
        return console.TextTable([("algorithm", ""), *map(_two_lines, KINDS)], rows, library)
    (algorithm, *texts), heads = rows[0], (("collective", ""), ("algorithm", "(ranks)"))
    return console.TextTable(heads, list(zip(KINDS, texts, strict=True)), f"{library}, {algorithm}")


def _two_lines(kind: str) -> tuple[str, str]:
    """Split a collective's name into a narrow head of two lines."""
    first, _, last = kind.rpartition("_")
    return (f"{first}_", last) if first else (kind, "")


def _text(cell: CoverageCell) -> str:
    """Return the ranks for which it is proved, and the algorithm where another one ran."""
    if cell.refused:
        return "-"
    other = cell.taken if cell.taken.partition(":")[0] != cell.algorithm else ""
    first, last = cell.proved or (0, 0)
    proved = f"{first}-{last}" if first < last else str(last) if last else "yes"
    return f"{other} {proved}".strip()
