"""``ringside validate``: predict and measure on emulated networks; fail past the stated tolerances."""

from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.commands.validate.outcome import carry_out, print_outcome
from ringside.options import asks
from ringside.report.page import Page, Table, write_page
from ringside.topologies.disk import check_outputs
from ringside.topologies.names import one_of
from ringside.validation.emulated.collectives import FamilyVerdict, MeasuredCase
from ringside.validation.emulated.plan import MBIT, Tolerance
from ringside.validation.questions.emulated_validation import CollectiveValidation, CollectiveValidations

COLLECTIVES = "collectives"
OTHERS = ("ddp", "training", "recordings", "memory", "disturbances")
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


@asks(CollectiveValidation)
def command(
    question: CollectiveValidation,
    what: Annotated[
        str,
        typer.Argument(
            autocompletion=lambda: [COLLECTIVES, *OTHERS],
            help=f"Commands with options of their own: {', '.join(f'validate {name}' for name in OTHERS)}.",
        ),
    ] = COLLECTIVES,
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
    check_outputs([plot, html])

    def report(answer: CollectiveValidations) -> None:
        content = _content(answer)
        if json:
            console.print_json("validation", content)
        else:
            grid = console.TextTable(HEADS, [_row(cell) for cell in answer.cases])
            print_outcome(answer, grid, list(map(_sentence, answer.verdicts)))
        if plot:
            from ringside.pictures.measured.validation import draw_validation

            draw_validation(answer.cases, plot)
        if html:
            write_page(_page(answer, content), html, [plot])

    carry_out(question, CollectiveValidations, report)


def _content(answer: CollectiveValidations) -> dict[str, Any]:
    families = [{**asdict(verdict), "passed": verdict.passed} for verdict in answer.verdicts]
    planned = {"planned_cells": answer.planned, "complete": len(answer.cases) == answer.planned}
    return {"inputs": answer.inputs, **planned, "families": families, "rows": answer.rows}


def _page(answer: CollectiveValidations, raw: Mapping[str, Any]) -> Page:
    from ringside.report.validation import validation_figures

    cells, planned, by_family = answer.cases, answer.planned, answer.verdicts
    errors = [abs(cell.error) for cell in cells if not cell.noisy]
    passed = sum(verdict.passed for verdict in by_family)
    middle = f"; median error {median(errors):.1%}, worst {max(errors):.1%}" if errors else ""
    cut = f"; interrupted: {len(cells)} of {planned} cells" if len(cells) < planned else ""
    return Page(
        title="Emulated networks, predicted from ping-pong and measured",
        headline=f"{passed} of {len(by_family)} families are within their tolerance{middle}{cut}.",
        figures=validation_figures(cells),
        tables=[Table("Every cell", HEADS, [_row(cell) for cell in cells])],
        notes=[_sentence(verdict) for verdict in by_family],
        raw=raw,
    )


def _row(cell: MeasuredCase) -> tuple[console.Cell, ...]:
    return (
        *(cell.size_bytes, cell.ranks, cell.collective, cell.algorithm),
        *(cell.measured_s * 1e3, cell.predicted_s * 1e3, cell.error * 100, "noisy" if cell.noisy else "-"),
        *(f"{cell.bandwidth / MBIT:g}", cell.spread * 100, cell.placement),
        *(f"{cell.oversubscription:g}", cell.family.replace(" ", "_")),
    )


def _sentence(verdict: FamilyVerdict) -> str:
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
