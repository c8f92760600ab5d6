"""Verdicts of the proof against runs of the same programs on real Gloo."""

import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from ringside.sim.program.check import PROVED, Verdict, check
from ringside.sim.program.record.distributed import record
from tests.real.trial import Outcome, trial
from tests.sim.program.cases.known import CASES
from tests.sim.program.random_programs import RandomProgram, random_program
from tests.tiers import slow_or_proof

PATIENCE_S = 2.0
"""More than any program computes."""

AT_ONCE = 4

LAWLESS = {"send_to_nobody"}
"""Gloo looks for the peer past the end of its list: it waits for what it takes for one, or is killed."""

NIGHT = 300
"""Random programs of a night, which are those of its day."""


class Run(NamedTuple):
    """A program, what was said of it, and what became of it."""

    program: Any
    verdict: Verdict
    outcome: Outcome

    @property
    def is_false(self) -> bool:
        """Return whether the verdict excludes an outcome."""
        return self.outcome.outcome not in self.verdict.outcomes


@dataclass(frozen=True)
class Hesitant:
    """A random program whose ranks hesitate before they do something, so that others are first."""

    program: RandomProgram
    seed: int

    def __call__(self, dist: Any) -> None:
        """One rank's part."""
        self.program(_Hesitation(dist, random.Random(f"{self.seed} {dist.get_rank()}")))

    def __str__(self) -> str:
        return f"random_program({self.seed}):\n{self.program.text}"


class _Hesitation:
    def __init__(self, dist: Any, draw: random.Random) -> None:
        self._dist = dist
        self._draw = draw

    def __getattr__(self, name: str) -> Any:
        time.sleep(self._draw.choice((0.0, 0.0, 0.0, 1e-3, 4e-3)))
        return getattr(self._dist, name)


def runs(programs: Iterable[tuple[Any, Callable[[Any], Any], int]]) -> list[Run]:
    """Judge and run programs by name, with their ranks."""

    def run(program: tuple[Any, Callable[[Any], Any], int]) -> Run:
        name, main, ranks = program
        return Run(name, check(record(main, ranks)), trial(main, ranks, PATIENCE_S))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, programs))


def random_runs(seeds: Iterable[int]) -> list[Run]:
    """Run random programs of these seeds on ranks with random delays."""
    programs = [Hesitant(random_program(seed), seed) for seed in seeds]
    return runs((program, program, program.program.ranks) for program in programs)


def false(several: list[Run]) -> str:
    """Return the runs whose outcome contradicts the verdict, with their programs."""
    return "\n".join(
        f"{run.program}\n{run.verdict.verdict}: {'; '.join(run.verdict.story)}\nreally {run.outcome}"
        for run in several
        if run.is_false
    )


@pytest.mark.parametrize("each", slow_or_proof([5, 1]))
def test_each_verdict_is_what_real_gloo_does(each: int) -> None:
    asked = [(name, case.main, case.ranks) for name, case in CASES.items() if case.gloo]
    found = runs(asked[::each])
    assert not false([run for run in found if run.program not in LAWLESS])
    assert len(found) >= 40 // each


@pytest.mark.slow
def test_random_programs_become_what_is_said_of_them() -> None:
    assert not false(random_runs(range(10)))


@pytest.mark.proof
def test_a_nights_random_programs_become_what_is_said_of_them() -> None:
    first = int(time.time()) // 86_400 * NIGHT
    found = random_runs(range(first, first + NIGHT))
    assert not false(found)
    assert sum(run.verdict.verdict == PROVED for run in found) > NIGHT / 3
