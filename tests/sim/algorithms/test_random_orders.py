"""The proof against random mutations: accepted schedules are correct in any legal order."""

import random
from collections.abc import Iterator

import pytest

import ringside.sim.proof
from ringside.sim.algorithms import Build
from ringside.sim.collective import Collective
from ringside.sim.proof import prove
from ringside.sim.schedule import Schedule, ScheduleError
from tests.sim.algorithms.execution import Program, right
from tests.sim.algorithms.mutating import BUILDS, mutated, shipped
from tests.sim.algorithms.rewriting import moves, with_moves


def mutations(numbers: range) -> Iterator[tuple[random.Random, Schedule]]:
    for number in numbers:
        chance = random.Random(number)
        yield chance, mutated(shipped(chance), chance)


def complaint(plan: Schedule) -> str:
    try:
        prove(plan)
    except ScheduleError as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize(
    ("numbers", "orders", "least"),
    [(range(200), 20, 40), pytest.param(range(1000, 4000), 200, 600, marks=pytest.mark.proof)],
)
def test_mutated_schedules_that_pass_are_right_in_any_order(numbers: range, orders: int, least: int) -> None:
    passed = [(chance, plan) for chance, plan in mutations(numbers) if not complaint(plan)]
    for chance, plan in passed:
        program = Program(plan)
        assert all(right(program, chance) for _ in range(orders)), moves(plan)
    assert len(passed) > least


def test_nearly_all_that_is_refused_for_its_order_goes_wrong_in_one() -> None:
    wrong = []
    for chance, plan in mutations(range(10_000, 10_600)):
        message = complaint(plan)
        if "nothing orders them" in message or "deadlock" in message:
            program = Program(plan)
            wrong.append(not all(right(program, chance) for _ in range(300)))
    # a part that is read too late does no harm where the whole comes behind it
    assert sum(wrong) > 0.9 * len(wrong) > 10


def test_counting_lets_nothing_pass_that_sets_and_races_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [plan for _, plan in mutations(range(5000, 5400))]
    counted = [complaint(plan) for plan in plans]
    monkeypatch.setattr(ringside.sim.proof, "_doubtful", lambda schedule, chunks: list(chunks))
    assert [complaint(plan) for plan in plans] == counted
    assert 50 < counted.count("") < 350


@pytest.mark.parametrize(("kind", "build"), BUILDS)
def test_changes_without_a_meaning_are_not_refused(kind: str, build: Build) -> None:
    for ranks in (2, 3, 5, 8):
        plan = build(Collective(kind, ranks, 9000))
        waves, chance = moves(plan), random.Random(ranks)
        for wave in waves:
            chance.shuffle(wave)
        channels = [chance.randrange(3) for _ in range(2)]
        renamed = [[move._replace(channel=channels[move.channel]) for move in wave] for wave in waves]
        alone = [[move] for wave in waves for move in wave]
        # where ranks send copies, who is in a step with whom says what is copied
        for changed in (waves, renamed) if plan.copies else (waves, renamed, alone):
            assert not complaint(with_moves(plan, changed))
