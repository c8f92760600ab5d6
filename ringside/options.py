"""Options for the output of commands, each described once; all others are fields of questions."""

from pathlib import Path
from typing import Annotated

import typer

from ringside import console
from ringside.sim.effort import MAX_MEMORY, MAX_TRANSFERS, forced
from ringside.topologies.units import format_size

FORMATS = (".svg", ".png", ".pdf")
"""Endings of pictures' names."""


def _lift_limits(context: typer.Context, is_given: bool) -> bool:
    """Apply ``--force``: simulations of any size while the command runs."""
    if is_given:
        context.with_resource(forced())
    return is_given


def check_picture(path: Path | None) -> Path | None:
    """Refuse a name that is not a picture's, before any work is done."""
    if path is not None and path.suffix not in FORMATS:
        raise ValueError(f"{path}: not a picture format; write a name that ends in {', '.join(FORMATS)}")
    return path


def _check_page(path: Path | None) -> Path | None:
    """Refuse a name that is not a page's, before any work is done."""
    if path is not None and path.suffix != ".html":
        raise ValueError(f"{path}: not the name of a page; write a name that ends in .html")
    return path


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
All = Annotated[
    bool,
    typer.Option("--all", callback=console.widen, help="Print every column, even wider than 80 characters."),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=check_picture, help="Draw to an .svg, .png or .pdf file."),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        callback=_check_page,
        help="Write an interactive page to one self-contained .html file.",
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
