"""``ringside validate ddp``: predicted and real training steps on emulated networks."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ringside import console
from ringside.commands.compare_ddp import cells, row, timelines
from validation.compare_ddp import ComparedSteps
from validation.emulated.plan import MBIT
from validation.emulated.training import StepCase, checks, judge, trials

HEADS = (
    *(("link", "(Mb/s)"), ("workers", ""), ("cap", "(MiB)"), ("buckets", ""), ("measured", "(ms)")),
    *(
        ("spread", "(%)"),
        ("predicted", "(ms)"),
        ("error", "(%)"),
        ("finish: median", "(%)"),
        ("worst", "(%)"),
    ),
)


def run(plot: Path | None, *, short: bool, as_json: bool) -> None:
    """Judge every trial and print it; draw the worst one; exit 1 past a tolerance.

    What was measured is printed and drawn even if the run is cut off.
    """
    plan = trials(rates=(200 * MBIT,)) if short else trials()
    judged: list[tuple[StepCase, ComparedSteps]] = []
    try:
        with console.progress("building networks", len(plan)) as bar:

            def keep(trial: StepCase, one: ComparedSteps) -> None:
                judged.append((trial, one))
                bar.done(_name(trial))

            judge(plan, keep)
    finally:
        if judged:
            _report(judged, plot, planned=len(plan), as_json=as_json)
    past = [check.what for check in checks([one for _, one in judged]) if not check.passed]
    if past:
        raise RuntimeError(f"past the tolerance: {', '.join(past)}")


def _report(
    judged: list[tuple[StepCase, ComparedSteps]], plot: Path | None, *, planned: int, as_json: bool
) -> None:
    found = checks([one for _, one in judged])
    if as_json:
        rows = [{**_inputs(trial), **row(_name(trial), one)} for trial, one in judged]
        summary = [{**asdict(check), "passed": check.passed} for check in found]
        complete = {"planned_cells": planned, "complete": len(judged) == planned}
        console.print_json("validation_ddp", {"inputs": {}, **complete, "checks": summary, "rows": rows})
    else:
        table = [
            (f"{trial.bandwidth / MBIT:g}", trial.workers, f"{trial.cap_mb:g}", *cells("", one)[2:])
            for trial, one in judged
        ]
        console.print_table([], HEADS, table)
        for check in found:
            passed = "pass" if check.passed else "FAIL"
            print(f"# {passed}  {check.what}: {check.error:.1%} (at most {check.most:.0%})")
        if len(judged) < planned:
            print(f"# cut off: {len(judged)} of {planned} cells")
    if plot:
        from ringside.pictures.training import draw_timelines

        worst = max(judged, key=lambda pair: abs(pair[1].step_error))
        draw_timelines(timelines(_name(worst[0]), worst[1]), plot)


def _inputs(trial: StepCase) -> dict[str, Any]:
    return {"bandwidth": trial.bandwidth, "bucket_cap_mb": trial.cap_mb, "workers": trial.workers}


def _name(trial: StepCase) -> str:
    workers = f"{trial.workers} worker{'s' if trial.workers > 1 else ''}"
    return f"{trial.bandwidth / MBIT:g} Mb/s, {trial.cap_mb:g} MiB, {workers}"
