"""Random programs: each has a verdict, and proved ones end in a simulation."""

import pytest

from ringside.sim.program.check import ENDS, FAILS, HANGS, PROVED, UNSAFE, check
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.record.distributed import record
from tests.sim.program.random_programs import random_program

STAR = {"bandwidth": "1GB/s", "latency": "10us"}

MAY = {PROVED: {ENDS}, HANGS: {HANGS, FAILS}, FAILS: {HANGS, FAILS}, UNSAFE: {ENDS, HANGS, FAILS}}
"""The outcomes that each verdict allows, of which those of one program are some."""


@pytest.mark.parametrize(("count", "each"), [(300, 3), pytest.param(5000, 50, marks=pytest.mark.proof)])
@pytest.mark.parametrize("library", ["gloo", "ideal", "nccl"])
def test_what_is_proved_is_simulated_to_its_end(library: str, count: int, each: int) -> None:
    cluster, figures = ("dgx-h100", {}) if library == "nccl" else ("star", STAR)
    of = {ranks: Libraries(library, cluster, figures, ranks) for ranks in (2, 3, 4)}
    counts = dict.fromkeys(MAY, 0)
    for seed in range(count):
        job = random_program(seed, library)
        libraries = of[job.ranks]
        program = record(job, job.ranks, libraries.rules, eager=library == "nccl" and seed % 2 == 0)
        found = check(program)
        counts[found.verdict] += 1
        assert found.outcomes <= MAY[found.verdict], (seed, found)
        assert found.outcomes
        assert bool(found.story) == (found.verdict != PROVED), (seed, found)
        if found.verdict == PROVED:
            (timeline,) = simulate([PlacedProgram(program, tuple(range(job.ranks)))], libraries)
            assert timeline.makespan_s >= 0
    assert min(counts.values()) >= each


def test_every_random_program_is_a_script() -> None:
    for seed in range(20_000):
        compile(random_program(seed).text, f"seed {seed}", "exec")
