"""One page format for all commands: the answer first, then figures and tables, raw rows last.

It needs no other file and no server: it includes plotly.js, some 4.8 MB.
"""

import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ringside.topologies.disk import is_stream, write_file
from ringside.topologies.units import parse_duration, parse_rate, parse_size

if TYPE_CHECKING:  # type checkers need not wait for plotly
    from plotly.graph_objects import Figure

Cell = str | int | float | None

UNKNOWN = "–"

_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?", re.IGNORECASE)
_PARSERS: tuple[Callable[[str], float], ...] = (float, parse_size, parse_rate, parse_duration)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under heads of a name and a unit; None and non-finite numbers are unknown."""

    title: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A command's page.

    ``headline`` is the answer in a sentence with its numbers. ``notes`` are caveats, ``texts`` are texts of
    fixed width by their titles, folded, ``raw`` is the output of ``--json``.
    """

    title: str
    headline: str
    figures: Mapping[str, "Figure"] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)


def shown_number(value: float) -> str:
    """Format a number for people: four digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def write_page(page: Page, path: Path | None, files: Iterable[Path | str | None] = ()) -> None:
    """Write the page, atomically, with links to those ``files`` that exist; None is no page."""
    if path is None:
        return
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.io import to_html
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("ringside.report", "."), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    config = {"responsive": True, "displaylogo": False}
    figures = {
        title: to_html(
            figure, config, full_html=False, include_plotlyjs=False, div_id=f"figure-{number}",
            default_height=f"{figure.layout.height or 450}px",
        )
        for number, (title, figure) in enumerate(page.figures.items(), 1)
    }  # fmt: skip
    text = environment.get_template("page.html").render(
        page=page, figures=figures, plotly=get_plotlyjs(), tables=[_shown(table) for table in page.tables],
        files=_links(files, path), command=shlex.join(["ringside", *sys.argv[1:]]),
        release=version("ringside-sim"), date=f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        raw=json.dumps(page.raw, indent=2) if page.raw else "",
    )  # fmt: skip
    write_file(path, text)


def _shown(table: Table) -> dict[str, Any]:
    """Return a table for the template: each cell's text and the number by which it sorts, if any."""
    rows = [[(_text(cell), _order(cell)) for cell in row] for row in table.rows]
    return {"title": table.title, "heads": table.heads, "rows": rows}


def _text(cell: Cell) -> str:
    if cell in (None, "", "-") or (isinstance(cell, float) and not math.isfinite(cell)):
        return UNKNOWN
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:,}" if isinstance(cell, int) else shown_number(cell)


def _order(cell: Cell) -> float | None:
    """Return the number that a cell is or begins with; sizes and durations by value."""
    if isinstance(cell, int | float):
        return float(cell) if math.isfinite(cell) else None
    text = (cell or "").strip()
    for parse in _PARSERS:
        with suppress(ValueError):
            value = parse(text)
            return value if math.isfinite(value) else None
    begins = _NUMBER.match(text)
    return float(begins[0].replace(",", "")) if begins else None


def _links(files: Iterable[Path | str | None], page: Path) -> list[tuple[str, str]]:
    """Return names and addresses of files, relative to the page."""
    folder = page.resolve().parent
    links = {}
    for path in (Path(file) for file in files if file is not None):
        if path.is_file() and not is_stream(path):
            links[str(path)] = quote(os.path.relpath(path.resolve(), folder).replace(os.sep, "/"))
    return list(links.items())
