"""``ringside measure elastic``: kill ranks of a torchrun job; measure and predict its goodput."""

import json as jsons
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.options import asks
from ringside.real.questions.elastic_measurement import ElasticMeasurement, ElasticMeasurements
from ringside.sim.goodput.elastic import SCHEMA, ElasticRun, Restarted
from ringside.topologies.disk import add_lines, check_outputs, is_stream, write_file
from ringside.validation.elastic import ComparedRun, compare_runs

HEADS = (
    *(("checkpoint", "every"), ("kills", ""), ("redone", "steps"), ("save", "(ms)"), ("restart", "(s)")),
    *(("wall", "(s)"), ("measured", "(%)"), ("predicted", "(%)"), ("error", "(points)")),
)


@asks(ElasticMeasurement)
def command(
    question: ElasticMeasurement,
    output: Annotated[Path, typer.Option("-o", metavar="FILE.jsonl", help="Append runs to this file.")],
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=options.check_picture, help="Draw goodput over intervals."),
    ] = None,
    force: options.ForceStart = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Kill ranks of a real job; compare its goodput with the prediction."""
    check_outputs([output, plot])
    is_comparable = len(question.interval) > 1 and question.kills
    if plot and not is_comparable:
        raise ValueError("a prediction needs two intervals and a kill; remove --plot, or write more")
    grows = not is_stream(output)
    if grows:
        _check_runs(output)
    runs: list[ElasticRun] = []
    try:
        with console.progress("starting", len(question.interval)) as bar:

            def keep(run: ElasticRun) -> None:
                runs.append(run)
                if grows:  # the file has every finished run, even if a later one fails
                    add_lines(output, run.line())
                bar.done(f"a checkpoint every {run.interval} steps")

            answer = question.ask(force=force, on_run=keep)
    finally:
        if runs and not grows:
            write_file(output, "".join(run.line() for run in runs))
    compared = compare_runs(runs) if is_comparable else []
    if plot:
        from ringside.pictures.measured.elastic import draw_elastic

        draw_elastic(compared, plot)
    if json:
        rows = [
            {**row, "predicted": _predicted(_of(run, compared))}
            for row, run in zip(answer.rows, runs, strict=True)
        ]
        console.print_json("elastic_runs", {"inputs": answer.inputs, "rows": rows})
    else:
        _print(answer, compared, output)


def _check_runs(output: Path) -> None:
    """Raise ValueError for a file without elastic runs."""
    if not output.exists():
        return
    with suppress(UnicodeDecodeError):
        text = output.read_text(encoding="utf-8")
        if not text or text.startswith(jsons.dumps({"schema": SCHEMA})[:-1]):
            return
    raise ValueError(f"{output} contains no elastic runs; write another name after -o")


def _of(run: ElasticRun, compared: Sequence[ComparedRun]) -> ComparedRun | None:
    """Return the run's prediction, if any."""
    return next((one for one in compared if one.run is run), None)


def _predicted(compared: ComparedRun | None) -> dict[str, Any] | None:
    if compared is None:
        return None
    return {
        "goodput": compared.predicted, "error": compared.error, "wall_s": compared.life.wall_s,
        "shares": compared.predicted_shares, "measured_shares": compared.measured_shares,
    }  # fmt: skip


def _print(answer: ElasticMeasurements, compared: Sequence[ComparedRun], output: Path) -> None:
    runs, first = answer.runs, answer.runs[0]
    restarts = [restart for one in runs for restart in one.restarts]
    lines = [
        f"{first.steps} steps of {fmean(s for one in runs for s in one.steps_s) * 1e3:.0f} ms on "
        f"{first.ranks} ranks over gloo, killed and restarted by torchrun; the sum of all steps was "
        f"checked; runs in {output}"
    ]
    if restarts:
        stages = (
            f"{name.removesuffix('_s')} {fmean(getattr(r, name) for r in restarts):.2f}" for name in _STAGES
        )
        lines.append(f"mean restart of {len(restarts)}, in seconds: {', '.join(stages)}")
    rests_on = []
    if compared:
        worst = max(compared, key=lambda one: abs(one.error))
        rests_on.append(
            "predicted from the steps, checkpoints and restarts of the other runs, with the same kills: "
            f"worst error {abs(worst.error) * 100:.1f} points, every {worst.run.interval} steps"
        )
    grid = console.TextTable(HEADS, [_cells(one, _of(one, compared)) for one in runs])
    console.print_answer(answer.headline, grid, rests_on=rests_on, notes=lines)


_STAGES = tuple(field.name for field in fields(Restarted))


def _cells(run: ElasticRun, compared: ComparedRun | None) -> tuple[console.Cell, ...]:
    restart = fmean(one.whole_s for one in run.restarts) if run.restarts else 0.0
    predicted = (compared.predicted * 100, compared.error * 100) if compared else ("-", "-")
    return (
        *(run.interval, len(run.restarts), run.redone, fmean(run.saves_s) * 1e3, restart),
        *(run.wall_s, run.goodput * 100, *predicted),
    )
