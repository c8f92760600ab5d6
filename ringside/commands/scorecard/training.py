"""``ringside scorecard training``: errors of predicted training steps on published ones."""

from typing import Annotated

import typer

from ringside import options
from ringside.commands.scorecard.command import run
from ringside.validation.questions.scorecard import TRAINING, Scorecard


def command(
    names: Annotated[
        list[str] | None, typer.Option("--table", metavar="NAME", help="Only this table; repeat for more.")
    ] = None,
    plot: options.Plot = None,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Score predicted training steps on published ones, given one row of each series."""
    run(Scorecard(what=TRAINING, tables=names or []), plot, html, as_json=json)
