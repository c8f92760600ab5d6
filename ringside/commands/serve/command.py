"""``ringside serve``: the explorer, a page on this machine alone."""

from pathlib import Path
from typing import Annotated

import typer

from ringside.topologies.disk import regular


def command(
    job: Annotated[Path | None, typer.Argument(metavar="JOB.json", help="A recorded job to open.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = False,
) -> None:
    """Explore collectives, layouts and recorded jobs on a page, on this machine alone."""
    from ringside.serve.server import serve

    start = {"recorded": {"model": str(regular(job))}} if job else {}

    def ready(address: str) -> None:
        page = f"{address}recorded" if job else address
        print(f"{page}\nfor this machine alone; Ctrl-C ends it", flush=True)
        if browser:
            import webbrowser

            webbrowser.open(page)

    serve(port, start, ready)
