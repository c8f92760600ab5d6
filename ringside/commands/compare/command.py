"""``ringside compare``: predictions beside measurements, as a table, a picture and a verdict."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.options import asks
from ringside.report.page import Page, Table, write_page
from ringside.sim.record import DDP_SCHEMA, schema_of
from ringside.topologies.disk import check_outputs
from ringside.topologies.units import parse_share
from ringside.validation.compare import Compared, headline, summaries, summary_lines
from ringside.validation.questions.comparison import Comparison

HEADS = (
    ("size", "(B)"),
    ("ranks", ""),
    ("collective", ""),
    ("predicted as", ""),
    ("measured", "(us)"),
    ("predicted", "(us)"),
    ("off by", ""),
    ("set", ""),
    ("spread", "(%)"),
    ("nodes", ""),
    ("ran", ""),
    ("busbw", "(GB/s)"),
    ("predicted", "(GB/s)"),
)


@asks(Comparison)
def command(
    question: Comparison,
    plot: options.Plot = None,
    html: options.Html = None,
    max_error: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="Exit 1 where a median error is larger.")
    ] = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Compare predictions with measurements: records and nccl-tests, or measured training steps."""
    limit = None if max_error is None else parse_share(max_error)
    inputs: list[Path | str] = [*question.files, str(question.calibration or ""), str(question.anchor or "")]
    check_outputs([plot, html], inputs=inputs)
    schemas = {schema_of(file) for file in question.files}
    if schemas != {None}:
        if question.changed("cluster", "settings", "network", "calibration", "anchor"):
            raise ValueError(
                "step files contain their network; remove --cluster, --set, --network, --calibration and "
                "--anchor"
            )
        _compare_steps(list(question.files), plot, html, limit, as_json=json)
        return
    answer = console.ask(question, "predicting")
    rows, errors = answer.comparisons.compared, answer.comparisons.summaries
    if plot:
        from ringside.pictures.collectives.curves import draw_comparison

        draw_comparison(rows, plot)
    if html:
        title = f"Predicted and measured on {answer.measured.cluster}"
        write_page(compared_page(title, rows, answer.notes, answer.content), html, [*inputs, plot or ""])
    if json:
        console.print_json("compare", answer.content)
    else:
        console.print_answer(
            answer.headline, console.TextTable(HEADS, [cells(row) for row in rows]), rests_on=answer.rests_on,
            notes=lambda: [*answer.notes, *summary_lines(errors)],
        )  # fmt: skip
    over = [name for name, one in errors.items() if limit is not None and not one.median_error <= limit]
    if over:
        raise RuntimeError(f"median error above {max_error} in rows {' and '.join(over)}")


def _compare_steps(
    files: list[Path], plot: Path | None, html: Path | None, limit: float | None, *, as_json: bool
) -> None:
    """Compare measured training steps, of DDP or others."""
    from ringside.commands.compare import ddp as compare_ddp
    from ringside.commands.compare import training as compare_training

    if schema_of(files[0]) == DDP_SCHEMA:
        compare_ddp.run(files, plot, html, limit, as_json=as_json)
        return
    if plot:
        raise ValueError("steps of measure train have no picture; remove --plot")
    compare_training.run(files, html, limit, as_json=as_json)


def compared_page(title: str, rows: Sequence[Compared], notes: Sequence[str], raw: Mapping[str, Any]) -> Page:
    """Build the page of predictions beside measurements."""
    from ringside.report.comparison import comparison_figures

    sums = summaries(rows)
    return Page(
        title=title,
        headline=headline(sums),
        figures=comparison_figures(rows),
        tables=[Table("Every row", HEADS, [cells(row) for row in rows])],
        notes=[*notes, *(line.removeprefix("# ") for line in summary_lines(sums))],
        raw=raw,
    )


def cells(row: Compared) -> tuple[console.Cell, ...]:
    """Return the cells of a row; ``-`` means unknown."""
    r = row.record
    return (
        *(r.nbytes, r.ranks, r.collective, row.choice or row.way),
        *(r.time_s * 1e6, row.predicted_s * 1e6, off_by(row), row.set),
        *(r.spread * 100 if r.spread else "-", r.num_nodes or "-", row.way),
        *(r.busbw / 1e9, row.predicted_busbw / 1e9),
    )


def off_by(row: Compared) -> str:
    """Format the factor by which the predicted time is too long or too short."""
    return f"{row.factor:.2f}x {'long' if row.error > 0 else 'short'}"
