"""Ranks of a recorded job play their representatives, with groups and peers of their own."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ringside.sim.program import Call, Compute, Recv, Send, Together, Wait
from ringside.sim.program.check import HANGS, PROVED, UNSAFE, check
from ringside.sim.program.libraries import Libraries
from ringside.sim.recorded.file import read_job
from ringside.sim.recorded.job import Entry, GroupCall, JobFileError, Operator, RecordedGroup, RecordedJob
from ringside.sim.recorded.program import Playing
from ringside.sim.recorded.step import NeverEndsError, RecordedTraining
from tests.sim.recorded.made import Recording, job_of, seconds_of, timed

HERE = Path(__file__).parent
DDP, PIPELINE = HERE.parents[2] / "examples/recorded.json", HERE / "pipeline.json"


def test_operations_are_the_entries() -> None:
    program = Playing(read_job(DDP), lambda _: 1e-3).program()
    operations = program.operations(5)
    assert operations is program.operations(5)
    kinds = [type(one.action) for one in operations]
    assert kinds == [Compute, Compute, Compute, Call, Compute, Compute, Wait]
    assert [one.lane for one in operations] == [*["compute"] * 3, "world", *["compute"] * 3]
    assert [one.holds for one in operations] == [*[False] * 6, True]
    assert operations[1].where == "train.py:7"
    assert (program.name, operations[5].after) == ("train.py", (3,))


def test_peers_and_roots_have_the_places_of_the_recorded_ones() -> None:
    program = Playing(read_job(PIPELINE)).program()
    lists = [program.operations(rank) for rank in range(4)]
    for rank, peer in enumerate([2, 3, 0, 1]):
        together = next(one.action for one in lists[rank] if isinstance(one.action, Together))
        assert [part.peer for part in together.parts] == [peer, peer]
        assert {type(part) for part in together.parts} == {Send, Recv}
        call = lists[rank][-1].action
        assert isinstance(call, Call)
        assert call.group.ranks == ((0, 1), (2, 3))[rank // 2]
        assert call.collective.root == (1, 0)[rank // 2]
    assert lists[0][2].after == (1,)
    assert check(program).verdict == PROVED


def test_with_gloo_the_host_waits_for_a_call_that_is_not_asynchronous() -> None:
    job = read_job(PIPELINE)
    assert not Playing(job).program().operations(0)[-1].holds
    assert Playing(job, library="gloo").program().operations(0)[-1].holds


def two_roles(*orders: tuple[str, ...], ranks: int) -> RecordedJob:
    """Return a job of two roles, which call all-reduces of groups in orders of their own."""
    half = ranks // 2
    recorded = []
    for first, order in zip((0, half), orders, strict=True):
        one = Recording(first, tuple(range(first, first + half)))
        one.post(timed(1e-3))
        for name in order:
            one.post(GroupCall(name, "all_reduce", "all_reduce", 4096, "float32"), f"lane {name}")
        recorded.append(one.done())
    everybody = (tuple(range(ranks)),)
    return job_of(recorded, [RecordedGroup("a", everybody), RecordedGroup("b", everybody)])


@pytest.mark.parametrize("ranks", [4, 64])
def test_orders_that_need_two_kernels_at_once_are_unsafe(ranks: int) -> None:
    verdict = check(Playing(two_roles(("a", "b"), ("b", "a"), ranks=ranks)).program())
    assert verdict.verdict == UNSAFE
    assert "several communicators at once" in verdict.story[-1]


@pytest.mark.parametrize("ranks", [4, 64, 1 << 14])
def test_a_call_that_some_ranks_do_not_make_hangs(ranks: int) -> None:
    job = two_roles(("a", "b"), ("a",), ranks=ranks)
    training = RecordedTraining(job, Libraries("nccl", f"dgx-h100:{-(-ranks // 8)}", {}, ranks), seconds_of)
    assert training.verdict.verdict == HANGS
    with pytest.raises(NeverEndsError, match=r"hangs: rank 0 .*waits in all_reduce.* of group b"):
        training.step()


def test_a_step_that_needs_two_kernels_at_once_is_answered_with_a_note() -> None:
    job = two_roles(("a", "b"), ("b", "a"), ranks=16)
    training = RecordedTraining(job, Libraries("nccl", "dgx-h100:2", {}, 16), seconds_of)
    assert training.step().step_s == 1e-3
    assert "unsafe" in training.notes[0]


def test_any_of_alike_ranks_may_be_the_recorded_one() -> None:
    job = read_job(DDP)
    (one,) = job.recorded
    other = replace(job, recorded=(replace(one, rank=5),))
    libraries = Libraries("nccl", "dgx-h100:2", {}, 16)
    first, second = (RecordedTraining(each, libraries, lambda _: 1e-3).step() for each in (job, other))
    assert first.stages == second.stages


def test_a_group_of_one_rank_exchanges_nothing() -> None:
    one = Recording(0, (0, 1))
    one.post(GroupCall("tp", "all_reduce", "all_reduce", 1 << 30, "float32"))
    one.post(timed(1e-3))
    job = job_of([one.done()], [RecordedGroup("tp", ((0,), (1,)))])
    assert RecordedTraining(job, Libraries("nccl", "dgx-h100:1", {}, 2), seconds_of).step().step_s == 1e-3


BROKEN = {
    "stand for 15 ranks": lambda job, one: replace(job, recorded=(replace(one, alike=one.alike[:-1]),)),
    "two groups have one name": lambda job, one: replace(job, groups=job.groups * 2),
    "no member": lambda job, one: replace(job, groups=(RecordedGroup("world", (tuple(range(1, 16)),)),)),
    "uses group world": lambda job, one: replace(job, groups=()),
    "action 9 of 5": lambda job, one: replace(job, recorded=(replace(one, entries=(Entry(9),)),)),
    "not before it": lambda job, one: replace(
        job, recorded=(replace(one, entries=(Entry(0, after=(0,)),)),)
    ),
    "calls sum": lambda job, one: replace(
        job, recorded=(replace(one, actions=(GroupCall("world", "x", "sum", 8, "int8"),), entries=()),)
    ),
    "not for each of 0": lambda job, one: replace(job, ranks=0),
    "does nothing": lambda job, one: replace(job, recorded=(replace(one, entries=()),)),
    "mm(), whose tensors": lambda job, one: replace(
        job, recorded=(replace(one, actions=(Operator("aten.mm"),)),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_job_that_contradicts_itself_is_refused(what: str) -> None:
    job = read_job(DDP)
    with pytest.raises(JobFileError, match=re.escape(what)):
        Playing(BROKEN[what](job, job.recorded[0]))


def test_memory_follows_the_hosts_order() -> None:
    job = read_job(DDP)
    (stage,) = RecordedTraining(job, Libraries("nccl", "dgx-h100:2", {}, 16), lambda _: 1e-3).step().stages
    mib = 1 << 20
    assert dict(stage.peak.by_pool) == {
        "parameters": 64 * mib, "optimizer": 128 * mib, "activations": 128 * mib,
    }  # fmt: skip
    assert stage.peak.operation == "mm"
    assert stage.memory.curve[-1][1] == 192 * mib
