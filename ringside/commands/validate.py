"""``ringside validate``: predict and measure on emulated networks; fail past the stated tolerances."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.pictures.style import check_format
from topologies.disk import check_outputs
from validation.emulated.collectives import MeasuredCase, Verdict, validate, verdicts
from validation.emulated.plan import FULL, MBIT, SHORT, Tolerance, num_cells, only

HEADS = (
    ("family", ""),
    ("size", "(B)"),
    ("ranks", ""),
    ("link", "(Mb/s)"),
    ("collective", ""),
    ("algorithm", ""),
    ("placement", ""),
    ("oversub.", ""),
    ("measured", "(ms)"),
    ("spread", "(%)"),
    ("predicted", "(ms)"),
    ("error", "(%)"),
    ("", ""),
)


def command(
    what: Annotated[str, typer.Argument(help="collectives, or ddp: training steps.")] = "collectives",
    short: Annotated[
        bool, typer.Option("--short", help="Under three minutes, in place of some twenty.")
    ] = False,
    family: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this family of cells; repeat for more.")
    ] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Predict from ping-pong, then measure, on emulated networks; exit 1 past a tolerance."""
    run(what, plot, short=short, families=family or [], as_json=json)


def run(what: str, plot: Path | None, *, short: bool, families: Sequence[str], as_json: bool) -> None:
    """Carry out the plan and print every cell; exit 1 where a family exceeds its tolerance.

    What was measured is printed and drawn even if the run is cut off.
    """
    check_format(plot)
    check_outputs([plot])
    if what == "ddp":
        if families:
            raise ValueError("steps have no families; leave --family out")
        from ringside.commands import validate_ddp

        validate_ddp.run(plot, short=short, as_json=as_json)
        return
    if what != "collectives":
        raise ValueError(f"{what!r} cannot be validated; write collectives or ddp")
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
            _report(cells, plot, short=short, planned=num_cells(plan), as_json=as_json)
    failed = [verdict.family for verdict in verdicts(cells) if not verdict.passed]
    if failed:
        raise RuntimeError(f"past the tolerance: {', '.join(failed)}")


def _report(
    cells: Sequence[MeasuredCase], plot: Path | None, *, short: bool, planned: int, as_json: bool
) -> None:
    found = verdicts(cells)
    if as_json:
        families = [{**asdict(verdict), "passed": verdict.passed} for verdict in found]
        rows = [{**asdict(cell), "error": cell.error, "noisy": cell.noisy} for cell in cells]
        inputs = {"short": short}
        complete = {"planned_cells": planned, "complete": len(cells) == planned}
        console.print_json("validation", {"inputs": inputs, **complete, "families": families, "rows": rows})
    else:
        console.print_table([], HEADS, [_row(cell) for cell in cells])
        print("\n".join(map(verdict_line, found)))
        if len(cells) < planned:
            print(f"# cut off: {len(cells)} of {planned} cells")
    if plot:
        from ringside.pictures.validation import draw_validation

        draw_validation(cells, plot)


def _row(cell: MeasuredCase) -> tuple[console.Cell, ...]:
    return (
        *(cell.family.replace(" ", "_"), cell.size_bytes, cell.ranks, f"{cell.bandwidth / MBIT:g}"),
        *(cell.collective, cell.algorithm, cell.placement, f"{cell.oversubscription:g}"),
        *(cell.measured_s * 1e3, cell.spread * 100, cell.predicted_s * 1e3, cell.error * 100),
        "noisy" if cell.noisy else "",
    )


def verdict_line(verdict: Verdict) -> str:
    """A family's errors, each beside what it may be at most."""
    limit: Tolerance = verdict.tolerance
    errors = (
        ("median", verdict.median_error, limit.median),
        ("90th percentile", verdict.p90_error, limit.p90),
        ("worst", verdict.worst_error, limit.worst),
    )
    said = ", ".join(
        f"{name} {error:.1%}" + (f" (at most {most:.0%})" if most is not None else "")
        for name, error, most in errors
    )
    noisy = f", {verdict.noisy} noisy left out" if verdict.noisy else ""
    return f"# {'pass' if verdict.passed else 'FAIL'}  {verdict.family}: {verdict.cells} cells{noisy}: {said}"
