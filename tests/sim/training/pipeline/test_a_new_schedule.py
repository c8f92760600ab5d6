"""A pipeline schedule is an entry of one table: one added from outside works everywhere."""

import pytest

from ringside import StepTime
from ringside.sim.program.check import PROVED, check
from ringside.sim.training.layers import Kernels, RankLayer
from ringside.sim.training.pipeline.actions import Action, Kind, Placement
from ringside.sim.training.pipeline.loops import Slot
from ringside.sim.training.pipeline.program import find_runtime, pipeline
from ringside.sim.training.pipeline.schedules import SCHEDULES, PipelineSchedule, placement, tables

NAME = "newest-first"


def newest_first(where: Placement, micro_batches: int, rank: int) -> list[Slot]:
    """Order all forwards, then the backwards from the last micro-batch to the first."""
    numbers = range(micro_batches)
    forwards = [Action(rank, Kind.FORWARD, number) for number in numbers]
    return [*forwards, *(Action(rank, Kind.BACKWARD, number) for number in reversed(numbers))]


@pytest.fixture(autouse=True)
def _schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEDULES, NAME, PipelineSchedule(order=newest_first))


def step_time(schedule: str) -> StepTime:
    return StepTime(model="gpt2:256", cluster="dgx-a100:1", pp=4, batch=8, schedule=schedule)


@pytest.mark.parametrize("ranks", range(1, 5))
@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_it_is_proved(ranks: int, micro_batches: int) -> None:
    layers = (
        RankLayer(
            name="layer", forward=(Kernels(1.0),), backward=(Kernels(2.0),), kept=(("activations", 1),)
        ),
    )
    own, place = tables(NAME, ranks, 1, micro_batches), placement(NAME, ranks, 1)
    made = pipeline("a step", own, place, lambda _: layers, find_runtime("torch", NAME))
    assert check(made).verdict == PROVED


def test_a_training_step_has_it() -> None:
    own, gpipe = (step_time(name).ask().rows for name in (NAME, "gpipe"))
    assert [row["compute_s"] for row in own] == pytest.approx([row["compute_s"] for row in gpipe])
    assert [row["bubble_s"] for row in own] == pytest.approx([row["bubble_s"] for row in gpipe], rel=0.1)


def test_a_typing_error_is_answered_with_it() -> None:
    with pytest.raises(ValueError, match=rf"unknown pipeline schedule 'newest-frist'; write {NAME} "):
        step_time("newest-frist").ask()
