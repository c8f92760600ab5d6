from collections.abc import Callable
from dataclasses import replace

import pytest

import ringside.sim.algorithms
from ringside.sim.algorithms import ALGORITHMS, Build, register, schedule
from ringside.sim.collective import Collective
from ringside.sim.predict import predict
from ringside.sim.schedule import Schedule, ScheduleError
from ringside.topologies import star


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the algorithm "mine" after each test."""
    monkeypatch.setitem(ALGORITHMS, "mine", {})
    monkeypatch.setattr(ringside.sim.algorithms, "_REGISTERED", set())


def ring_broken_from(ranks: float, told: Callable[[Collective], None] = lambda collective: None) -> Build:
    def build(collective: Collective) -> Schedule:
        told(collective)
        plan = replace(schedule("ring", collective), algorithm="mine")
        if collective.ranks < ranks:
            return plan
        steps = [*plan.steps()][:-1]
        return replace(plan, steps=lambda: iter(steps))

    return build


def test_what_is_broken_on_up_to_eight_ranks_cannot_be_registered() -> None:
    with pytest.raises(ScheduleError, match="mine all_reduce on 8 ranks: at the end rank 0 lacks"):
        register("mine", "all_reduce", ring_broken_from(8))
    assert not ALGORITHMS["mine"]


@pytest.mark.parametrize("algorithm", ["mine", "auto"])
def test_what_is_broken_on_more_is_refused_where_it_is_used(algorithm: str) -> None:
    register("mine", "all_reduce", ring_broken_from(9))
    assert not predict(Collective("all_reduce", 8, 4096), star(9), algorithm=algorithm).caveat
    with pytest.raises(ScheduleError, match="mine all_reduce on 9 ranks: at the end rank 0 lacks"):
        predict(Collective("all_reduce", 9, 4096), star(9), algorithm=algorithm)


def test_a_schedule_is_proved_once_until_another_is_registered() -> None:
    built: list[Collective] = []
    register("mine", "all_reduce", ring_broken_from(float("inf"), built.append))
    asked = Collective("all_reduce", 9, 4096, dtype="float32")
    built.clear()
    for _ in range(3):
        predict(asked, star(9), algorithm="mine")
    assert built == [asked] * 4, "once to be proved, three times to be simulated"
    register("mine", "all_reduce", ring_broken_from(9))
    with pytest.raises(ScheduleError):
        predict(asked, star(9), algorithm="mine")


def test_a_schedule_that_is_too_large_to_be_proved_is_used_and_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register("mine", "all_reduce", ring_broken_from(float("inf")))
    asked = Collective("all_reduce", 9, 4096)
    transfers = sum(len(moved) for moved in schedule("mine", asked).steps())
    monkeypatch.setattr(ringside.sim.algorithms, "MAX_PROVED", transfers)
    ringside.sim.algorithms._proved.cache_clear()
    assert not predict(asked, star(9), algorithm="mine").caveat
    monkeypatch.setattr(ringside.sim.algorithms, "MAX_PROVED", transfers - 1)
    ringside.sim.algorithms._proved.cache_clear()
    message = f"mine all_reduce on 9 ranks is not proved, because it has more than {transfers - 1} transfers"
    assert message in predict(asked, star(9), algorithm="mine").caveat
    assert not predict(asked, star(9), algorithm="ring").caveat
