"""The options that all kinds of ``ringside measure`` share."""

from pathlib import Path
from typing import Annotated

import typer

Ranks = Annotated[
    int | None,
    typer.Option("-g", "--ranks", show_default="2; emulated: all", help="Ranks on this node, or emulated."),
]
Steps = Annotated[int, typer.Option("-n", "--iterations", help="Timed steps.")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait of a rank for another.")]
Output = Annotated[Path, typer.Option("-o", metavar="FILE.json", help="Write the steps to this file.")]
Force = Annotated[
    bool, typer.Option("--force", help="Start without limits (usually 16 ranks per core, all memory).")
]
