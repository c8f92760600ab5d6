"""What the explorer shows of a state: questions are asked here, and their answers put into plain values."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ringside.options  # noqa: F401 - registers the parsers of fields
from ringside.commands.simulate.command import content_of, draw_timeline_of
from ringside.commands.train.command import shown_answer
from ringside.console import json_text
from ringside.pictures.animation import collective, pipeline
from ringside.pictures.animation.page import Animation, page_of
from ringside.pictures.jobs.pipeline import draw_pipeline
from ringside.pictures.jobs.training import draw_timelines
from ringside.serve.screens import SCREENS, State
from ringside.serve.spelling import question_of
from ringside.sim.questions.algorithm_choice import AlgorithmChoice
from ringside.sim.questions.collective_time import CollectiveTime
from ringside.sim.questions.question import Question
from ringside.sim.training.step import ParallelStep, StagedStep
from ringside.topologies.units import format_duration
from ringside.validation.questions.step_time import StepTime, StepUnderLayout
from ringside.validation.questions.what_if import WhatIf

Shown = dict[str, Any]


def view(screen: str, name: str, state: State, done: Callable[[str], None]) -> Shown:
    """Ask the question of a view, and return what it shows; ``done`` is called after each of its parts."""
    kind, texts = SCREENS[screen].questions[name](state)
    question = question_of(kind, texts)
    if name == "animation":
        return {"page": page_of(_animation(question, done), SCREENS[screen].spelled(name, state)["command"])}
    return _SHOWS[kind, name](question, done)


def _times(question: CollectiveTime, done: Callable[[str], None]) -> Shown:
    answer = question.ask(on_size=done)
    return {
        "json": json_text("simulate", content_of(answer)),
        "headline": answer.headline,
        "notes": [*answer.rests_on, *answer.notes],
    }


def _limits(question: WhatIf, done: Callable[[str], None]) -> Shown:
    answer = question.ask()
    return {"rows": answer.rows, "headline": answer.headline, "notes": [*answer.notes]}


def _map(question: AlgorithmChoice, done: Callable[[str], None]) -> Shown:
    answer = question.ask()
    return _picture(answer.plot, answer.headline)


def _collective_timeline(question: CollectiveTime, done: Callable[[str], None]) -> Shown:
    answer = question.ask(traced=True, on_size=done)
    first, library = answer.predictions[0], answer.first.library
    text = f"What each rank and each link does in {format_duration(first.time_s, 4)} by {first.algorithm}."
    return _picture(lambda path: draw_timeline_of(library, question.cluster, first, path), text)


def _step(question: StepTime, done: Callable[[str], None]) -> Shown:
    answer = question.ask(on_step=done)
    content = shown_answer(answer).content()
    return {"json": json_text("train", content), "headline": answer.headline, "notes": content["notes"]}


def _step_timeline(question: StepTime, done: Callable[[str], None]) -> Shown:
    step = question.step()
    title = f"{step.workload} on {step.ranks} ranks"
    if isinstance(step, StagedStep):
        what = "stage" if isinstance(step, ParallelStep) else "role"
        text = f"What each {what} of {title} does in a step of {format_duration(step.step_s, 4)}."
        return _picture(lambda path: draw_pipeline(step, path), text)
    text = f"Compute and collectives of {title} in a step of {format_duration(step.step_s, 4)}."
    return _picture(lambda path: draw_timelines({title: step}, path), text)


def _animation(question: Question, done: Callable[[str], None]) -> Animation:
    if isinstance(question, CollectiveTime):
        return collective.animated(question.ask(traced=True, on_size=done))
    assert isinstance(question, StepTime)  # the only other screen with an animation
    answer = question.ask(on_step=done)
    if not isinstance(answer, StepUnderLayout):
        raise ValueError("the animation shows a pipeline, and this has none; write `pp` 4")
    own = answer.question
    return pipeline.animated(answer.step, own.job.layout.schedule, own.where)


def _picture(draw: Callable[[Path], object], text: str) -> Shown:
    """Return a picture as SVG, and what it shows in words."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "picture.svg")
        draw(path)
        return {"picture": path.read_text(encoding="utf-8"), "headline": text, "notes": []}


_SHOWS: dict[tuple[type[Question], str], Callable[[Any, Callable[[str], None]], Shown]] = {
    (CollectiveTime, "answer"): _times,
    (CollectiveTime, "timeline"): _collective_timeline,
    (WhatIf, "limits"): _limits,
    (AlgorithmChoice, "map"): _map,
    (StepTime, "answer"): _step,
    (StepTime, "timeline"): _step_timeline,
}
