"""Options of what commands write and show, each described once; all others are fields of questions."""

from pathlib import Path
from typing import Annotated

import typer

from ringside import console
from ringside.sim.effort import MAX_MEMORY, MAX_TRANSFERS, forced
from ringside.topologies.units import format_size


def _lift_limits(context: typer.Context, is_given: bool) -> bool:
    """Apply ``--force``: simulations of any size while the command runs."""
    if is_given:
        context.with_resource(forced())
    return is_given


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
All = Annotated[
    bool,
    typer.Option("--all", callback=console.widen, help="Print every column, even wider than 80 characters."),
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw to an .svg, .png or .pdf file.")]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write an interactive page to one self-contained .html file."
    ),
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace.")]
Export = Annotated[
    Path | None,
    typer.Option(metavar="FILE|DIR", help="Export to another tool's format, by the file's extension."),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        callback=_lift_limits,
        help=f"Simulate without limits (usually {MAX_TRANSFERS:,} transfers, {format_size(MAX_MEMORY)}).",
    ),
]
ForceStart = Annotated[
    bool, typer.Option("--force", help="Start without limits (usually 16 ranks per core, all memory).")
]
Steps = Annotated[Path, typer.Option("-o", metavar="FILE.json", help="Write the steps to this file.")]
