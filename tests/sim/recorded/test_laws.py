"""Laws of recorded jobs: whatever a rank was recorded doing."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.program import Call
from ringside.sim.program.check import PROVED, check
from ringside.sim.program.jobs import PlacedProgram, play
from ringside.sim.program.libraries import Libraries
from ringside.sim.recorded.file import read_job, write_job
from ringside.sim.recorded.job import GroupCall, HostWait, RecordedGroup, RecordedJob
from ringside.sim.recorded.step import RecordedTraining
from tests.sim.recorded.made import Recording, job_of, seconds_of, timed

MACHINE, RANKS = 8, 16

LANES = ("compute", "gather", "group world")

ACTIONS = st.one_of(
    st.builds(timed, st.integers(0, 2000).map(lambda us: us * 1e-6)),
    st.builds(
        GroupCall,
        group=st.sampled_from(["world", "tp"]),
        name=st.just("all_reduce"),
        collective=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
        nbytes=st.sampled_from([4, 1 << 12, 1 << 20, 1 << 26]),
        dtype=st.just("float32"),
    ),
    st.builds(
        GroupCall,
        group=st.just("world"),
        name=st.just("broadcast"),
        collective=st.sampled_from(["broadcast", "reduce"]),
        nbytes=st.sampled_from([4, 1 << 20]),
        dtype=st.just("float32"),
        root=st.sampled_from([0, 5, 15]),
    ),
    st.just(HostWait("item")),
)


@st.composite
def jobs(draw: st.DrawFn) -> RecordedJob:
    """Draw a job of equal ranks, but that one may read a number; a group's calls are on one lane."""
    reads = draw(st.one_of(st.none(), st.sampled_from([0, 3, 9])))
    others = tuple(rank for rank in range(RANKS) if rank != reads)
    one = Recording(others[0], others)
    one.held = {"parameters": draw(st.integers(0, 1 << 30))}
    for number, action in enumerate(draw(st.lists(ACTIONS, min_size=1, max_size=20))):
        lane = draw(st.sampled_from(LANES))
        if isinstance(action, GroupCall):
            lane = {"world": "group world", "tp": "compute"}[action.group]
        after = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        memory = draw(st.sampled_from([(), (("activations", 1 << 20),), (("activations", -(1 << 10)),)]))
        one.post(action, lane, tuple(after), memory)
    machines = tuple(tuple(range(first, first + MACHINE)) for first in range(0, RANKS, MACHINE))
    groups = [RecordedGroup("world", (tuple(range(RANKS)),)), RecordedGroup("tp", machines)]
    recorded = [one.done()]
    if reads is not None:
        one.rank, one.alike = reads, (reads,)
        one.post(HostWait("item"))
        recorded.append(one.done())
    return job_of(recorded, groups, samples=draw(st.one_of(st.none(), st.integers(1, 1000))))


LIBRARIES = cache(lambda ranks: Libraries("nccl", "dgx-h100:2", {}, ranks))


def training(job: RecordedJob) -> RecordedTraining:
    return RecordedTraining(job, LIBRARIES(job.ranks), seconds_of, contention=0.1)


@given(jobs())
@settings(max_examples=25)
def test_a_job_that_is_written_and_read_answers_the_same(tmp_path_factory, job: RecordedJob) -> None:
    path: Path = tmp_path_factory.mktemp("jobs") / "job.json"
    write_job(job, path)
    again = read_job(path)
    assert again == job
    one, other = training(job).step(), training(again).step()
    assert (one.step_s, one.throughput, one.stages) == (other.step_s, other.throughput, other.stages)


@given(jobs())
@settings(max_examples=25)
def test_every_rank_plays_what_its_representative_does(job: RecordedJob) -> None:
    program = training(job).program
    assert check(replace(program, role=None)).verdict == check(program).verdict == PROVED
    calls = [
        one.action.collective.nbytes
        for rank in range(job.ranks)
        for one in program.operations(rank)
        if isinstance(one.action, Call)
    ]
    recorded = [job.recorded[0].actions[entry.action] for entry in job.recorded[0].entries]
    assert sum(calls) == job.ranks * sum(one.nbytes for one in recorded if isinstance(one, GroupCall))


@given(jobs())
@settings(max_examples=25)
def test_a_wait_that_a_lane_implies_changes_nothing(job: RecordedJob) -> None:
    recorded = []
    for one in job.recorded:
        last: dict[str, int] = {}
        entries = []
        for number, entry in enumerate(one.entries):
            after = {*entry.after, last[entry.lane]} if entry.lane in last else set(entry.after)
            entries.append(replace(entry, after=tuple(sorted(after))))
            last[entry.lane] = number
        recorded.append(replace(one, entries=tuple(entries)))
    waiting = replace(job, recorded=tuple(recorded))
    assert training(waiting).step().step_s == training(job).step().step_s


@given(jobs())
@settings(max_examples=25)
def test_one_rank_stands_for_all_where_groups_share_no_links(job: RecordedJob) -> None:
    one = training(job)
    every = PlacedProgram(one.program, tuple(range(job.ranks)))
    folded = replace(every, roles=one.roles)
    (alone,), (all_,) = play([folded], one.libraries, 0.1), play([every], one.libraries, 0.1)
    assert alone.makespan_s == pytest.approx(all_.makespan_s, rel=1e-9)


@given(jobs())
@settings(max_examples=25)
def test_parts_of_a_step_add_up_to_it(job: RecordedJob) -> None:
    step = training(job).step()
    assert sum(stage.ranks for stage in step.stages) == job.ranks
    for stage in step.stages:
        assert stage.busy_s + stage.exposed_s + stage.bubble_s == pytest.approx(step.step_s, abs=1e-12)


@given(jobs())
@settings(max_examples=25)
def test_memory_ends_with_what_was_held_and_all_changes(job: RecordedJob) -> None:
    step = training(job).step()
    one = next(one for one in job.recorded if step.stages[0].rank in one.alike)
    changes = sum(nbytes for entry in one.entries for _, nbytes in entry.memory)
    use = step.stages[0].memory
    assert use.curve[-1][1] == sum(one.held.values()) + changes
    assert use.peak.nbytes == sum(use.peak.by_pool.values()) >= max(nbytes for _, nbytes in use.curve)
    assert [moment for moment, _ in use.curve] == sorted({moment for moment, _ in use.curve})
