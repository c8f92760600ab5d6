"""``ringside compare`` on measured training steps: each predicted from its run's compute and network."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from ringside import console
from ringside.report.page import Page, Table, write_page
from ringside.sim.training.ddp.step import TrainingStep, read
from ringside.validation.compare_ddp import ComparedSteps, compare_steps, row_of

HEADS = (
    *(("file", ""), ("ranks", ""), ("measured", "(ms)"), ("predicted", "(ms)"), ("error", "(%)")),
    *(("finish: median", "(%)"), ("worst", "(%)"), ("spread", "(%)"), ("buckets", "")),
)


def run(
    files: list[Path], plot: Path | None, html: Path | None, limit: float | None, *, as_json: bool
) -> None:
    """Predict every file's step and compare it with the measurement; exit 1 past the limit."""
    records = [read(file) for file in files]
    judged = {}
    with console.simulating("predicting", len(records)) as bar:
        for file, record in zip(files, records, strict=True):
            judged[str(file)] = compare_steps(record)
            bar.done(f"predicted {file}")
    if plot:
        from ringside.pictures.jobs.training import draw_timelines

        pairs = [timelines(name, one) for name, one in judged.items()]
        draw_timelines({title: step for pair in pairs for title, step in pair.items()}, plot)
    content = {"rows": [row_of(name, one) for name, one in judged.items()]}
    if html:
        write_page(_page(judged, content), html, [*files, plot])
    if as_json:
        console.print_json("compare_ddp", content)
    else:
        errors = {name: one.step_error for name, one in judged.items()}
        grid = console.TextTable(HEADS, [cells(name, one) for name, one in judged.items()])
        console.print_answer(steps_headline(errors), grid)
    over = [name for name, one in judged.items() if limit is not None and not abs(one.step_error) <= limit]
    if over:
        raise RuntimeError(f"error of the step above {limit:.0%} in {', '.join(over)}")


def _page(judged: Mapping[str, ComparedSteps], raw: Mapping[str, Any]) -> Page:
    from ringside.report.training import timelines_figure

    table = [cells(name, one) for name, one in judged.items()]
    errors = {name: one.step_error for name, one in judged.items()}
    return Page(
        title="Training steps, predicted and measured",
        headline=steps_headline(errors),
        figures={f"{name}: what ran when": timelines_figure(timelines(name, one))
                 for name, one in judged.items()},
        tables=[Table("Every run", HEADS, table)],
        raw=raw,
    )  # fmt: skip


def steps_headline(errors: Mapping[str, float]) -> str:
    """Summarize the errors of predicted steps in a sentence."""
    if not errors:
        return "No step has a prediction."
    worst = max(errors, key=lambda name: abs(errors[name]))
    if len(errors) == 1:
        return f"The step is predicted with an error of {errors[worst]:+.1%}."
    middle = median(map(abs, errors.values()))
    return f"Steps are predicted with a median error of {middle:.1%}; worst {errors[worst]:+.1%}, {worst}."


def timelines(name: str, one: ComparedSteps) -> dict[str, TrainingStep]:
    """Return both steps by title, the predicted one first."""
    return {f"{name}, predicted": one.predicted, f"{name}, measured": one.record.median}


def cells(name: str, one: ComparedSteps) -> tuple[console.Cell, ...]:
    """Return the cells of a comparison."""
    finishes = [abs(error) * 100 for error in one.finish_errors]
    return (
        *(name, one.record.ranks, one.measured_s * 1e3, one.predicted.step_s * 1e3, one.step_error * 100),
        *(median(finishes), max(finishes), one.spread * 100, len(finishes)),
    )
