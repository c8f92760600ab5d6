"""``ringside validate ddp``: predicted and real training steps on emulated networks."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ringside import console, options
from ringside.commands.compare.ddp import HEADS as STEP_HEADS
from ringside.commands.compare.ddp import cells, row, steps_headline, timelines
from ringside.pictures.style import check_format
from ringside.report.page import Page, Table, check_page, write_page
from ringside.topologies.disk import check_outputs
from ringside.validation.compare_ddp import ComparedSteps
from ringside.validation.emulated.plan import MBIT
from ringside.validation.emulated.training import Check, StepCase, checks, judge, trials

HEADS = (("link", "(Mb/s)"), ("workers", ""), ("cap", "(MiB)"), ("hook", ""), *STEP_HEADS[2:])


def command(
    short: options.Short = False,
    plot: options.Plot = None,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict, then measure, steps of DistributedDataParallel on emulated networks."""
    check_format(plot)
    check_outputs([plot])
    check_page(html, [plot])
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
            _report(judged, plot, html, planned=len(plan), as_json=json)
    past = [check.what for check in checks([one for _, one in judged]) if not check.passed]
    if past:
        raise RuntimeError(f"past the tolerance: {', '.join(past)}")


def _report(
    judged: list[tuple[StepCase, ComparedSteps]], plot: Path | None, html: Path | None, *,
    planned: int, as_json: bool,
) -> None:  # fmt: skip
    results = checks([one for _, one in judged])
    rows = [{**_inputs(trial), **row(_name(trial), one)} for trial, one in judged]
    summary = [{**asdict(check), "passed": check.passed} for check in results]
    complete = {"planned_cells": planned, "complete": len(judged) == planned}
    content = {"inputs": {}, **complete, "checks": summary, "rows": rows}
    table = [
        (
            *(f"{trial.bandwidth / MBIT:g}", trial.workers, f"{trial.cap_mb:g}"),
            *("powersgd" if trial.powersgd else "", *cells("", one)[2:]),
        )
        for trial, one in judged
    ]
    if as_json:
        console.print_json("validation_ddp", content)
    else:
        console.print_table([], HEADS, table)
        console.print_comments(map(check_line, results))
        if len(judged) < planned:
            console.print_comments([f"interrupted: {len(judged)} of {planned} cells"])
    trial, worst = max(judged, key=lambda pair: abs(pair[1].step_error))
    if plot:
        from ringside.pictures.jobs.training import draw_timelines

        draw_timelines(timelines(_name(trial), worst), plot)
    if html:
        from ringside.report.charts import beside
        from ringside.report.training import timelines_figure

        names = [_name(trial) for trial, _ in judged]
        times = {"measured": [one.measured_s for _, one in judged],
                 "predicted": [one.predicted.step_s for _, one in judged]}  # fmt: skip
        page = Page(
            title="Training steps on emulated networks, predicted and measured",
            headline=steps_headline({_name(trial): one.step_error for trial, one in judged}),
            figures={
                "Time of a step": beside(names, times),
                f"The worst, {_name(trial)}: what ran when": timelines_figure(timelines(_name(trial), worst)),
            },
            tables=[Table("Every cell", HEADS, table)],
            told=[check_line(check) for check in results],
            raw=content,
        )
        write_page(page, html, [plot])


def check_line(check: Check) -> str:
    """Format an error beside its limit."""
    return f"{'pass' if check.passed else 'FAIL'}  {check.what}: {check.error:.1%} (at most {check.most:.0%})"


def _inputs(trial: StepCase) -> dict[str, Any]:
    inputs = {"bandwidth": trial.bandwidth, "bucket_cap_mb": trial.cap_mb, "workers": trial.workers}
    return {**inputs, "powersgd_rank": trial.powersgd.rank} if trial.powersgd else inputs


def _name(trial: StepCase) -> str:
    workers = f"{trial.workers} worker{'s' if trial.workers > 1 else ''}"
    hook = f", PowerSGD of rank {trial.powersgd.rank}" if trial.powersgd else ""
    return f"{trial.bandwidth / MBIT:g} Mb/s, {trial.cap_mb:g} MiB, {workers}{hook}"
