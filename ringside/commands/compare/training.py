"""``ringside compare`` on steps of ``measure train``: order, bytes and time beside the prediction."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringside import console
from ringside.commands.compare.ddp import steps_headline
from ringside.real.training.record import read
from ringside.report.page import Page, Table, write_page
from ringside.validation.training.compare import ComparedTraining, compare_training, row_of

HEADS = (
    *(
        ("job", ""),
        ("order", ""),
        ("bytes", ""),
        ("measured", "(ms)"),
        ("predicted", "(ms)"),
        ("error", "(%)"),
    ),
    *(("spread", "(%)"), ("operations", "")),
)

MOST_SHOWN = 8
"""The maximum of differences printed."""


def run(files: list[Path], html: Path | None, limit: float | None, *, as_json: bool) -> None:
    """Compare every file's steps with their program; exit 1 on a difference or past the limit."""
    judged = {str(file): compare_training(read(file)) for file in files}
    content = {"rows": [row_of(name, one) for name, one in judged.items()]}
    if html:
        write_page(trainings_page(judged, content), html, files)
    if as_json:
        console.print_json("compare_training", content)
    else:
        lines = [line for one in judged.values() for line in one.differences[:MOST_SHOWN]]
        grid = console.TextTable(HEADS, [cells(name, one) for name, one in judged.items()])
        console.print_answer(trainings_headline(judged), grid, rests_on=lines[:1], notes=lines)
    wrong = [name for name, one in judged.items() if not (one.same_order and one.same_bytes)]
    if wrong:
        raise RuntimeError(f"ranks did not follow their program in {', '.join(wrong)}")
    over = [
        name for name, one in judged.items()
        if limit is not None and one.error is not None and not abs(one.error) <= limit
    ]  # fmt: skip
    if over:
        raise RuntimeError(f"error of the step above {limit:.0%} in {', '.join(over)}")


def trainings_page(
    judged: Mapping[str, ComparedTraining], raw: Mapping[str, Any], notes: Sequence[str] = ()
) -> Page:
    """Build the page of steps beside their programs; ``notes`` precede the differences."""
    from ringside.report.charts import beside

    times: dict[str, list[float | None]] = {"measured": [one.record.step_s for one in judged.values()],
             "predicted": [one.predicted_s for one in judged.values()]}  # fmt: skip
    return Page(
        title="Training steps, predicted and measured",
        headline=trainings_headline(judged),
        figures={"Time of a step": beside(list(judged), times)},
        tables=[Table("Every job", HEADS, [cells(name, one) for name, one in judged.items()])],
        notes=[*notes, *(f"{name}: {line}" for name, one in judged.items()
                       for line in one.differences[:MOST_SHOWN])],
        raw=raw,
    )  # fmt: skip


def trainings_headline(judged: Mapping[str, ComparedTraining]) -> str:
    """Summarize the errors of predicted steps, and how many jobs followed their program."""
    errors = {name: one.error for name, one in judged.items() if one.error is not None}
    same = sum(one.same_order and one.same_bytes for one in judged.values())
    return f"{steps_headline(errors)} {same} of {len(judged)} jobs followed their program."


def sentences(one: ComparedTraining) -> list[str]:
    """Describe one comparison in sentences."""
    if one.differences:
        return [f"order or bytes differ from the program's: {one.differences[0]}"]
    lines = [f"all {one.planned} collectives and messages have the program's order and bytes in every step"]
    if one.predicted_s is not None and one.error is not None:
        source = "ping-pong and the host's own work" if one.hosted else "ping-pong"
        lines.append(f"predicted from {source} {one.predicted_s * 1e3:.1f} ms, error {one.error:+.1%}")
    return lines


def cells(name: str, one: ComparedTraining) -> tuple[console.Cell, ...]:
    """Return the cells of a comparison."""
    predicted_s, error = one.predicted_s, one.error
    return (
        name.replace(" ", "_"),
        *("identical" if same else "DIFFERS" for same in (one.same_order, one.same_bytes)),
        one.record.step_s * 1e3,
        *(("-", "-") if predicted_s is None or error is None else (predicted_s * 1e3, error * 100)),
        *(one.record.spread * 100, one.planned),
    )
