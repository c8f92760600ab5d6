"""``ringside validate``: predict and measure on emulated networks; fail past the stated tolerances."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.pictures.style import check_format
from ringside.report.page import Page, Table, check_page, write_page
from ringside.topologies.disk import check_outputs
from ringside.topologies.names import one_of
from ringside.validation.emulated.collectives import MeasuredCase, Verdict, validate, verdicts
from ringside.validation.emulated.plan import FULL, MBIT, SHORT, Tolerance, num_cells, only

COLLECTIVES = "collectives"
OTHERS = ("ddp", "training", "disturbances")
"""Other validations, each a command of its own."""

HEADS = (
    ("size", "(B)"),
    ("ranks", ""),
    ("collective", ""),
    ("algorithm", ""),
    ("measured", "(ms)"),
    ("predicted", "(ms)"),
    ("error", "(%)"),
    ("noisy", ""),
    ("link", "(Mb/s)"),
    ("spread", "(%)"),
    ("placement", ""),
    ("oversub.", ""),
    ("family", ""),
)


def command(
    what: Annotated[
        str,
        typer.Argument(
            autocompletion=lambda: [COLLECTIVES, *OTHERS],
            help=f"Commands with options of their own: {', '.join(f'validate {name}' for name in OTHERS)}.",
        ),
    ] = COLLECTIVES,
    short: options.Short = False,
    family: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this family of cells; repeat for more.")
    ] = None,
    plot: options.Plot = None,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict from ping-pong, then measure, on emulated networks; exit 1 past a tolerance."""
    if what in OTHERS:
        raise ValueError(f"{what} is a command with its own options; write ringside validate {what}")
    if what != COLLECTIVES:
        known = (COLLECTIVES, *OTHERS)
        raise ValueError(f"unknown validation {what!r}; write {one_of(known, what)}")
    run(plot, html, short=short, families=family or [], as_json=json)


def run(plot: Path | None, html: Path | None, *, short: bool, families: Sequence[str], as_json: bool) -> None:
    """Measure every cell of the plan and print it; exit 1 if a family exceeds its tolerance.

    Measured cells are printed and drawn even if the run is interrupted.
    """
    check_format(plot)
    check_outputs([plot])
    check_page(html, [plot])
    plan = only(SHORT if short else FULL, families)
    cells: list[MeasuredCase] = []
    try:
        with console.progress("building networks", num_cells(plan)) as bar:

            def keep(cell: MeasuredCase) -> None:
                cells.append(cell)
                bar.done(f"{cell.collective} {cell.algorithm}, {cell.ranks} ranks")

            validate(plan, keep)
    finally:
        if cells:
            _report(cells, plot, html, short=short, planned=num_cells(plan), as_json=as_json)
    failed = [verdict.family for verdict in verdicts(cells) if not verdict.passed]
    if failed:
        raise RuntimeError(f"past the tolerance: {', '.join(failed)}")


def _report(
    cells: Sequence[MeasuredCase], plot: Path | None, html: Path | None, *,
    short: bool, planned: int, as_json: bool,
) -> None:  # fmt: skip
    by_family = verdicts(cells)
    families = [{**asdict(verdict), "passed": verdict.passed} for verdict in by_family]
    rows = [{**asdict(cell), "error": cell.error, "noisy": cell.noisy} for cell in cells]
    complete = {"planned_cells": planned, "complete": len(cells) == planned}
    content = {"inputs": {"short": short}, **complete, "families": families, "rows": rows}
    if as_json:
        console.print_json("validation", content)
    else:
        console.print_table([], HEADS, [_row(cell) for cell in cells])
        console.print_comments(map(verdict_line, by_family))
        if len(cells) < planned:
            console.print_comments([f"interrupted: {len(cells)} of {planned} cells"])
    if plot:
        from ringside.pictures.measured.validation import draw_validation

        draw_validation(cells, plot)
    if html:
        write_page(_page(cells, planned, content), html, [plot])


def _page(cells: Sequence[MeasuredCase], planned: int, raw: Mapping[str, Any]) -> Page:
    from ringside.report.validation import validation_figures

    by_family, errors = verdicts(cells), [abs(cell.error) for cell in cells if not cell.noisy]
    passed = sum(verdict.passed for verdict in by_family)
    middle = f"; median error {median(errors):.1%}, worst {max(errors):.1%}" if errors else ""
    cut = f"; interrupted: {len(cells)} of {planned} cells" if len(cells) < planned else ""
    return Page(
        title="Emulated networks, predicted from ping-pong and measured",
        headline=f"{passed} of {len(by_family)} families are within their tolerance{middle}{cut}.",
        figures=validation_figures(cells),
        tables=[Table("Every cell", HEADS, [_row(cell) for cell in cells])],
        told=[verdict_line(verdict).removeprefix("# ") for verdict in by_family],
        raw=raw,
    )


def _row(cell: MeasuredCase) -> tuple[console.Cell, ...]:
    return (
        *(cell.size_bytes, cell.ranks, cell.collective, cell.algorithm),
        *(cell.measured_s * 1e3, cell.predicted_s * 1e3, cell.error * 100, "noisy" if cell.noisy else "-"),
        *(f"{cell.bandwidth / MBIT:g}", cell.spread * 100, cell.placement),
        *(f"{cell.oversubscription:g}", cell.family.replace(" ", "_")),
    )


def verdict_line(verdict: Verdict) -> str:
    """Format a family's errors, each beside its limit."""
    limit: Tolerance = verdict.tolerance
    errors = (
        ("median", verdict.median_error, limit.median),
        ("90th percentile", verdict.p90_error, limit.p90),
        ("worst", verdict.worst_error, limit.worst),
    )
    text = ", ".join(
        f"{name} {error:.1%}" + (f" (at most {most:.0%})" if most is not None else "")
        for name, error, most in errors
    )
    noisy = f", {verdict.noisy} noisy left out" if verdict.noisy else ""
    return f"{'pass' if verdict.passed else 'FAIL'}  {verdict.family}: {verdict.cells} cells{noisy}: {text}"
