"""``ringside validate training``: predicted and real steps of FSDP, pipelines and tensor parallelism."""

from dataclasses import asdict
from pathlib import Path

from ringside import console, options
from ringside.commands.compare.training import HEADS, MOST_SHOWN, cells, row, trainings_page
from ringside.commands.validate.ddp import check_line
from ringside.report.page import check_page, write_page
from ringside.validation.emulated.strategies import CASES, SHORT, StrategyCase, checks, judge, only
from ringside.validation.training.compare import ComparedTraining


def command(
    short: options.Short = False,
    family: options.Cases = None,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict, then measure, steps of FSDP and pipelines on emulated networks."""
    check_page(html)
    plan = only(SHORT if short else CASES, family or [])
    judged: list[tuple[StrategyCase, ComparedTraining]] = []
    try:
        with console.progress("building a network", len(plan)) as bar:

            def keep(case: StrategyCase, one: ComparedTraining) -> None:
                judged.append((case, one))
                bar.done(case.name)

            judge(plan, keep)
    finally:
        if judged:
            _report(judged, html, len(plan), as_json=json)
    past = [check.what for check in checks([one for _, one in judged]) if not check.passed]
    if past:
        raise RuntimeError(f"past the tolerance: {', '.join(past)}")


def _report(
    judged: list[tuple[StrategyCase, ComparedTraining]], html: Path | None, planned: int, *, as_json: bool
) -> None:
    results = checks([one for _, one in judged])
    summary = [{**asdict(check), "passed": check.passed} for check in results]
    complete = {"planned_cells": planned, "complete": len(judged) == planned}
    rows = [row(case.name, one) for case, one in judged]
    content = {"inputs": {}, **complete, "checks": summary, "rows": rows}
    if html:
        notes = [check_line(check) for check in results]
        write_page(trainings_page({case.name: one for case, one in judged}, content, notes), html)
    if as_json:
        console.print_json("validation_training", content)
        return
    lines = [f"{case.name}: {line}" for case, one in judged for line in one.differences[:MOST_SHOWN]]
    console.print_table(lines, HEADS, [cells(case.name, one) for case, one in judged])
    console.print_comments(map(check_line, results))
    if len(judged) < planned:
        console.print_comments([f"interrupted: {len(judged)} of {planned} cells"])
