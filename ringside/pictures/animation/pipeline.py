"""A step of a pipeline: micro-batches that pass through its stages, and where stages wait."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ringside.pictures.animation.page import Animation, Panel
from ringside.pictures.jobs.pipeline import MOST_STAGES, kind_of_work
from ringside.sim.program.timeline import Span
from ringside.sim.training.stage import STREAM
from ringside.sim.training.step import ParallelStep
from ringside.topologies.units import format_duration

MOST_BOXES = 4_000
"""The limit of boxes of one animation."""

_MOMENTS = 12
"""Rows of the text that says what runs when."""

_OF_BATCH = re.compile(r"stage (\d+).*micro-batch (\d+)")
_CLASSES = {"weight gradient": "weight"}
"""The style of kinds of work with two words."""


class Box(NamedTuple):
    """What a rank does for one micro-batch without a break: ``part`` is the model's stage."""

    row: int
    begin: float
    end: float
    kind: str
    part: int | None
    batch: int | None


def animated(step: ParallelStep, schedule: str, cluster: str) -> Animation:
    """Return the page of a step."""
    rows, took = len(step.stages), format_duration(step.step_s, 4)
    if rows < 2:
        raise ValueError("--animate shows a pipeline, and this has one stage; add --pp 4")
    boxes = [box for row, stage in enumerate(step.stages[:MOST_STAGES])
             for box in boxes_of(row, step.timeline.spans[stage.rank])]  # fmt: skip
    if len(boxes) > MOST_BOXES:
        raise ValueError(
            f"--animate shows up to {MOST_BOXES:,} boxes, not {len(boxes):,}; write a smaller --batch or --pp"
        )
    scene = _scene(step, boxes, messages_of(boxes))
    what = f"{step.workload} on {cluster}, {rows} stages by {schedule}"
    return Animation(
        kind="pipeline",
        title=what,
        headline=f"A step takes {took}; stages wait for one another in {step.bubble_share:.1%} of it.",
        caption=(
            f"A row for each of {rows} stages; the clock runs from left to right. A light box is a forward "
            "pass, a dark one a backward pass, with the number of its micro-batch; a green one is the "
            "optimizer. Empty parts of a row are the bubble and exposed communication: the stage waits. A "
            "dot is a message that is on its way to the next stage, or waits there."
        ),
        panels=[Panel(title=schedule, answer=took, what="", why=_why(step), scene=scene)],
        figures=("stage", "computes", "waits for own bytes", "bubble"),
        rows=[
            (f"{row}", format_duration(stage.busy_s, 4), format_duration(stage.exposed_s, 3),
             f"{format_duration(stage.bubble_s, 3)}, {stage.bubble_s / step.step_s:.1%}")
            for row, stage in enumerate(step.stages)
        ],
        moments=_moments(step, boxes),
        lesson=_lesson(step, boxes),
    )  # fmt: skip


def boxes_of(row: int, spans: Iterable[Span]) -> list[Box]:
    """Join a rank's spans of one pass of a micro-batch to boxes, in order."""
    boxes: list[Box] = []
    for span in spans:
        kind = kind_of_work(span)
        if span.lane != STREAM or kind is None:
            continue
        place = _OF_BATCH.search(span.name)
        part, batch = map(int, place.groups()) if place else (None, None)
        if kind != "optimizer" and (kind == "copy" or batch is None):
            continue
        box = Box(row, span.begin, span.end, kind, part, batch)
        last = boxes[-1] if boxes else None
        if last and (last.kind, last.part, last.batch) == (kind, part, batch):
            boxes[-1] = last._replace(end=span.end)
        else:
            boxes.append(box)
    return boxes


def messages_of(boxes: Sequence[Box]) -> list[tuple[int, int, float, float]]:
    """Return what passes between stages: both rows, when it is ready and when it is used."""
    by_pass: dict[tuple[str, int | None, int | None], Box]
    by_pass = {(box.kind, box.part, box.batch): box for box in boxes if box.part is not None}
    messages = []
    for (kind, part, batch), box in by_pass.items():
        assert part is not None  # by the line above
        to = {"forward": part + 1, "backward": part - 1}.get(kind)
        receiver = by_pass.get((kind, to, batch))
        if receiver and receiver.row != box.row and receiver.begin > box.end:
            messages.append((box.row, receiver.row, box.end, receiver.begin))
    return messages


def _scene(
    step: ParallelStep, boxes: Sequence[Box], messages: Sequence[tuple[int, int, float, float]]
) -> dict[str, Any]:
    """Return the panel's data, in nanoseconds."""
    return {
        "stages": [f"stage {row}" for row in range(min(len(step.stages), MOST_STAGES))],
        "boxes": [
            [box.row, _ns(box.begin), _ns(box.end), _CLASSES.get(box.kind, box.kind), box.batch]
            for box in boxes
        ],
        "messages": [[one, other, _ns(sent), _ns(used)] for one, other, sent, used in messages],
        "end": _ns(step.step_s),
    }


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _why(step: ParallelStep) -> list[str]:
    """Return where the step's time goes, a sentence each."""
    stages = step.stages
    busiest = max(range(len(stages)), key=lambda row: stages[row].busy_s)
    busy, took = (format_duration(seconds, 4) for seconds in (stages[busiest].busy_s, step.step_s))
    return [
        f"Each of {len(stages)} stages computes {step.micro_batches} micro-batches forward and backward.",
        f"Stage {busiest} computes longest, {busy} of the step's {took}; on average a stage waits "
        f"{step.bubble_share:.1%} of the step for other stages and {step.exposed_s / step.step_s:.1%} for "
        "bytes of its own.",
    ]


def _lesson(step: ParallelStep, boxes: Sequence[Box]) -> list[str]:
    """Return why there is a bubble, and how large it would be with equal stages."""
    stages, batches = len(step.stages), step.micro_batches
    parts = len({box.part for box in boxes if box.part is not None}) // stages or 1
    equal = (stages - 1) / (parts * batches + stages - 1)
    return [
        "A pipeline must fill and empty: the last stage waits for the first micro-batch, and the first stage "
        "for the last gradient. More micro-batches make that a smaller part of the step; they keep more "
        "activations, unless the schedule runs a backward pass as soon as it can (1F1B).",
        "Equal stages without communication would wait (p-1)/(vm+p-1) of the step, by a schedule that leaves "
        f"no other gaps: {equal:.1%} with p = {stages} stages, m = {batches} micro-batches and v = {parts} "
        f"of the model's parts a rank. The simulated {step.bubble_share:.1%} also has stages of unequal "
        "length, whose neighbours wait for the longest.",
    ]


def _moments(step: ParallelStep, boxes: Sequence[Box]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return what each stage does at moments of the step, in words: heads and rows."""
    rows = range(min(len(step.stages), MOST_STAGES))
    table = []
    for place in range(_MOMENTS):
        moment = step.step_s * (place + 0.5) / _MOMENTS
        now = {box.row: box for box in boxes if box.begin <= moment < box.end}
        table.append((format_duration(moment, 3), *(_activity(now.get(row)) for row in rows)))
    return ("time", *(f"stage {row}" for row in rows)), table


def _activity(box: Box | None) -> str:
    if box is None:
        return "waits"
    return box.kind if box.batch is None else f"{box.kind} {box.batch}"
