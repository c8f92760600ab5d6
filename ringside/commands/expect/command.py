"""``ringside expect``: the bus bandwidth that a healthy machine shows, and a gate for logs."""

from typing import Any

import typer

from ringside import console, options
from ringside.commands.explain.command import cause_content
from ringside.options import asks_one_of
from ringside.sim.questions.question import options_of
from ringside.validation.floors import RunVerdict
from ringside.validation.questions.health import (
    HealthGate,
    HealthVerdict,
    HealthyBandwidth,
    HealthyBandwidths,
)

HEADS = (
    *(("size", "(B)"), ("expected", "(GB/s)"), ("floor", "(GB/s)")),
    *(("algorithm", ""), ("protocol", "")),
)
GATE_HEADS = (
    *(("size", "(B)"), ("ranks", ""), ("collective", ""), ("measured", "(GB/s)"), ("floor", "(GB/s)")),
    *(("expected", "(GB/s)"), ("below", ""), ("nodes", "")),
)


@asks_one_of(HealthyBandwidth, HealthGate)
def command(
    values: dict[str, Any],
    context: typer.Context,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Show the bus bandwidth that a healthy cluster reaches; exit 1 for a log below it."""
    is_gate = "files" in values
    kind = HealthGate if is_gate else HealthyBandwidth
    names = {one.name for one in options_of(kind)}
    others = {one.name for one in (*options_of(HealthGate), *options_of(HealthyBandwidth))} - names
    if misplaced := sorted(console.given(context) & others):
        raise ValueError(
            f"`{misplaced[0]}` does not apply {'to' if is_gate else 'without'} --gate; remove it"
        )
    if not is_gate and not {"collective", "cluster"} <= values.keys():
        raise ValueError(
            "write a collective and `cluster`, such as all_reduce --cluster dgx-h100:2, or a log: --gate LOG"
        )
    question = kind(**{name: value for name, value in values.items() if name in names})
    if isinstance(question, HealthGate):
        answer = console.ask(question, "predicting")
        _print_verdict(answer, as_json=json)
        if not answer.is_healthy:
            raise typer.Exit(1)
    else:
        with console.simulating("predicting"):
            _print(question.ask(), as_json=json)


def _print(answer: HealthyBandwidths, *, as_json: bool) -> None:
    if as_json:
        content = {"inputs": answer.inputs, "notes": answer.notes, "rows": answer.rows}
        console.print_json(answer.question.schema, content)
        return
    question, rows = answer.question, answer.rows
    heads = [*([("nodes", "")] if question.nodes else []), *HEADS]
    cells = [
        (
            *([row["num_nodes"]] if question.nodes else []),
            *(row["size_bytes"], row["expected_busbw"] / 1e9, _floor(row)),
            *(row["algorithm"], row["protocol"]),
        )
        for row in rows
    ]
    grid = console.TextTable(heads, cells)
    console.print_answer(answer.headline, grid, rests_on=answer.rests_on, notes=answer.notes)


def _floor(row: dict[str, Any]) -> console.Cell:
    return "-" if row["floor_busbw"] is None else row["floor_busbw"] / 1e9


def _print_verdict(answer: HealthVerdict, *, as_json: bool) -> None:
    if as_json:
        content = {
            "inputs": answer.inputs,
            "healthy": answer.is_healthy,
            "runs": [_run_content(run) for run in answer.runs],
            "certain": answer.is_certain,
            "causes": [cause_content(one) for one in answer.causes],
            "notes": answer.notes,
            "rows": answer.rows,
        }
        console.print_json(answer.question.schema, content)
        return
    cells = [
        (
            *(row["size_bytes"], row["ranks"], row["collective"], row["measured_busbw"] / 1e9, _floor(row)),
            *(row["expected_busbw"] / 1e9, _mark(row), row["num_nodes"] or "-"),
        )
        for row in answer.rows
    ]
    console.print_answer(
        answer.headline, console.TextTable(GATE_HEADS, cells), rests_on=answer.rests_on,
        notes=[*answer.findings, *answer.notes],
    )  # fmt: skip


def _mark(row: dict[str, Any]) -> str:
    if not row["below"]:
        return ""
    return "yes" if row["decides"] else "(yes)"


def _run_content(run: RunVerdict) -> dict[str, Any]:
    record = run.record
    return {
        "source": record.source,
        "collective": record.collective,
        "num_nodes": record.num_nodes or None,
        "ranks": record.ranks,
        "rows": len(run.rows),
        "below": len(run.below),
        "slower": run.slower,
    }
