"""``ringside explain``: why a log's bus bandwidth is low, what to try, and the limits of the log."""

from dataclasses import asdict
from typing import Any

from ringside import console, options
from ringside.options import asks
from ringside.validation.explain.story import lines, sentence, unknown
from ringside.validation.explain.verdict import CauseFit, LogVerdict, UnusualSettings
from ringside.validation.questions.explanation import Explained, Explanation

HEADS = (
    ("fits best where", ""),
    ("off by", "(x)"),
    ("cause?", ""),
    ("looked at", ""),
)


@asks(Explanation)
def command(
    question: Explanation,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Explain why a log's bus bandwidth is low, compared with similar machines, and what to try."""
    answer = console.ask(question, "trying causes")
    measured, verdict = answer.measured, answer.verdict
    if json:
        inputs = question.inputs() | {"cluster": measured.cluster}
        content = {"inputs": inputs, "machine": measured.cluster, "notes": answer.notes}
        console.print_json("explain", content | _content(answer))
        return
    comments = [
        f"machine: {measured.cluster}, {measured.source}; similar machines (the family): {answer.family}",
        f"rows: {len(verdict.records)} of {len(measured.records)} are compared",
        *answer.notes,
    ]
    notes = [*comments, *lines(verdict)]
    grid = console.TextTable(HEADS, _table(verdict))
    console.print_answer(answer.headline, grid, rests_on=answer.rests_on, notes=notes)


def _table(verdict: LogVerdict) -> list[tuple[console.Cell, ...]]:
    def mark(one: CauseFit) -> str:
        if one in verdict.named:
            return "yes" if verdict.clear else "maybe"
        return "no" if verdict.named or verdict.departs else "-"

    return [
        ("nothing is changed", verdict.left, "", "(similar machines)"),
        *((sentence(one), one.left, mark(one), one.cause.looks_at) for one in verdict.tried),
    ]


def _content(answer: Explained) -> dict[str, Any]:
    verdict = answer.verdict
    return {
        "departs": verdict.departs,
        "clear": verdict.clear,
        "slower": verdict.slower,
        "typical": verdict.typical,
        "causes": [cause_content(one) for one in verdict.named],
        "tried": [cause_content(one) for one in verdict.tried],
        "told": _settings_content(verdict.unusual),
        "cannot_tell": [line.removeprefix("- ") for line in unknown(verdict)],
        "rows": answer.rows,
    }


def cause_content(one: CauseFit) -> dict[str, Any]:
    """Return a cause for JSON."""
    return {
        "cause": one.cause.key,
        "value": one.value,
        "says": sentence(one),
        "settle": one.cause.settle,
        "cost": one.cost,
        "left": one.left,
    }


def _settings_content(setting: UnusualSettings | None) -> dict[str, Any] | None:
    return None if setting is None else asdict(setting)
