"""The course of every validation, and how its checks are printed."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from ringside import console
from ringside.validation.questions.emulated_validation import CheckedValidations, Validations

Answer = TypeVar("Answer", bound=Validations)


def carry_out(
    question: Any, answer: Callable[[Any, Sequence[Any]], Answer], report: Callable[[Answer], None]
) -> None:
    """Measure, and report the cases so far, even if interrupted; raise RuntimeError past a tolerance.

    ``answer`` makes the answer from the cases.
    """
    cases: list[Any] = []
    try:
        with console.progress("building a network", answer(question, ()).planned) as bar:

            def keep(case: Any, *compared: Any) -> None:
                cases.append((case, *compared) if compared else case)
                bar.done(case.name)

            question.ask(on_case=keep)
    finally:
        if cases:
            report(answer(question, cases))
    if failed := answer(question, cases).failed:
        raise RuntimeError(f"past the tolerance: {', '.join(failed)}")


def content(answer: CheckedValidations) -> dict[str, Any]:
    """Return an answer for JSON."""
    checks = [{**asdict(check), "passed": check.passed} for check in answer.checks]
    planned = {"planned_cells": answer.planned, "complete": len(answer.cases) == answer.planned}
    return {"inputs": answer.inputs, **planned, "checks": checks, "rows": answer.rows}


def print_outcome(answer: Validations, grid: console.TextTable, sentences: Sequence[str]) -> None:
    """Print the verdict, the cases, and with ``-v`` every figure beside its limit."""
    failed = [one for one in sentences if one.startswith("FAIL")]
    rests_on = [line for line in (answer.grounds, "; ".join(failed)) if line]
    console.print_answer(answer.headline, grid, rests_on=rests_on, notes=sentences)
