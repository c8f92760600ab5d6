"""``ringside compare`` on measured training steps: each predicted from the compute and network of its run."""

from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from ringside import console
from sim.training.ddp.record import read
from sim.training.step import TrainingStep
from validation.compare_ddp import ComparedSteps, compare_steps

HEADS = (
    *(("file", ""), ("ranks", ""), ("buckets", ""), ("measured", "(ms)"), ("spread", "(%)")),
    *(("predicted", "(ms)"), ("error", "(%)"), ("finish: median", "(%)"), ("worst", "(%)")),
)


def run(files: list[Path], plot: Path | None, limit: float | None, *, as_json: bool) -> None:
    """Predict every file's step and lay it beside the measured ones; exit 1 where one is off by more."""
    records = [read(file) for file in files]
    judged = {}
    with console.simulating("predicting", len(records)) as bar:
        for file, record in zip(files, records, strict=True):
            judged[str(file)] = compare_steps(record)
            bar.done(f"predicted {file}")
    if plot:
        from ringside.pictures.training import draw_timelines

        pairs = [timelines(name, one) for name, one in judged.items()]
        draw_timelines({title: step for pair in pairs for title, step in pair.items()}, plot)
    if as_json:
        console.print_json("compare_ddp", {"rows": [row(name, one) for name, one in judged.items()]})
    else:
        console.print_table([], HEADS, [cells(name, one) for name, one in judged.items()])
    over = [name for name, one in judged.items() if limit is not None and not abs(one.step_error) <= limit]
    if over:
        raise RuntimeError(f"error of the step above {limit:.0%} in {', '.join(over)}")


def timelines(name: str, one: ComparedSteps) -> dict[str, TrainingStep]:
    """Both steps with their titles, the predicted one above."""
    return {f"{name}, predicted": one.predicted, f"{name}, measured": one.record.median}


def cells(name: str, one: ComparedSteps) -> tuple[console.Cell, ...]:
    """A pair as the table shows it."""
    finishes = [abs(error) * 100 for error in one.finish_errors]
    return (
        *(name, one.record.ranks, len(finishes), one.measured_s * 1e3, one.spread * 100),
        *(one.predicted.step_s * 1e3, one.step_error * 100, median(finishes), max(finishes)),
    )


def row(name: str, one: ComparedSteps) -> dict[str, Any]:
    """A pair as JSON has it."""
    return {
        "file": name,
        "ranks": one.record.ranks,
        "steps": len(one.record.steps),
        "measured_s": one.measured_s,
        "spread": one.spread,
        "predicted_s": one.predicted.step_s,
        "error": one.step_error,
        "finish_errors": one.finish_errors,
        "predicted_buckets": [asdict(bucket) for bucket in one.predicted.buckets],
        "measured_buckets": [asdict(bucket) for bucket in one.record.median.buckets],
    }
