"""``ringside program DUMPS``: which rank keeps a job that hangs from going on."""

from pathlib import Path

import typer

from ringside import console
from ringside.sim.questions.hang_cause import HangAnswer, HangCause
from ringside.topologies.disk import check_outputs

MOST_ROWS = 64
"""Maximum number of ranks in a table; JSON has all."""

HEADS = (("rank", ""), ("state", ""), ("call", ""), ("number", ""), ("group", ""), ("place", ""))


def run(question: HangCause, plot: Path | None, *, as_json: bool) -> None:
    """Print the cause, draw it, and exit 1 if there is one."""
    check_outputs((plot,), question.dumps)
    answer = question.ask()
    if plot:
        from ringside.pictures.jobs.hang import draw_hang

        draw_hang(answer, plot)
    if as_json:
        console.print_json(question.schema, answer.content)
    else:
        _print(answer)
    if answer.finding:
        raise typer.Exit(1)


def _print(answer: HangAnswer) -> None:
    """Print the answer, and where ranks are, guilty ones first."""
    rows = sorted(answer.rows, key=lambda row: (not row["guilty"], row["rank"]))[:MOST_ROWS]
    left = answer.job.ranks - len(rows)
    more = f"{left:,} more ranks are in the JSON" if left else ""
    heads = [head for head in HEADS if head[0] != "place" or any(row["place"] for row in rows)]
    table = [["-" if row[head] in (None, "") else row[head] for head, _ in heads] for row in rows]
    grid = console.TextTable(heads, table, more)
    console.print_answer(answer.headline, grid, rests_on=answer.rests_on, notes=answer.notes)
