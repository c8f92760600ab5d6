"""A job on other ranks is what would have been recorded there, or is refused."""

from dataclasses import replace

import pytest

from ringside.sim.program.check import PROVED, check
from ringside.sim.program.libraries import Libraries
from ringside.sim.recorded.file import read_job
from ringside.sim.recorded.job import (
    Entry,
    GroupCall,
    HostWait,
    JobFileError,
    Operator,
    PeerMessage,
    RecordedGroup,
    RecordedJob,
    RecordedRank,
    Shaped,
)
from ringside.sim.recorded.program import Playing
from ringside.sim.recorded.ranks import on_ranks
from ringside.sim.recorded.step import RecordedTraining
from ringside.sim.training.parallel import simulate_parallel
from ringside.sim.training.program import Writing
from ringside.validation.questions.step_time import StepTime
from tests.sim.recorded.made import decoder, recorded_of, seconds_of
from tests.sim.recorded.test_program import DDP, PIPELINE


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("ranks", [16, 32, 256])
def test_sharded_parameters_are_those_of_a_recording_there(tp: int, ranks: int) -> None:
    settings = {"layers": 2, "per_layer": 40, "tp": tp}
    there, wanted = on_ranks(decoder(64, **settings), ranks), decoder(ranks, **settings)
    assert replace(there, notes=()) == wanted
    assert "recorded on 64 ranks" in there.notes[0]


@pytest.mark.parametrize("layout", [{}, {"tp": 4}, {"pp": 2}, {"pp": 2, "tp": 4}], ids=str)
def test_replicas_are_those_of_a_strategy_there(layout: dict[str, int]) -> None:
    def question(cluster: str) -> StepTime:
        return StepTime(
            model="gpt2:128", cluster=cluster, batch=2, micro_batch=1, spread=0.0, contention=0.0, **layout
        )

    small, large = question("dgx-h100:2"), question("dgx-h100:4")
    writing = Writing(small.job)
    recorded = recorded_of(writing.program(), small.job.roles, lambda rank: writing.step(rank).held)
    libraries = Libraries("nccl", "dgx-h100:4", {}, 32)
    step = RecordedTraining(on_ranks(recorded, 32), libraries, seconds_of).step()
    assert step.step_s == pytest.approx(simulate_parallel(large.job, large.libraries).step_s, rel=1e-9)


def test_samples_grow_with_ranks_and_back() -> None:
    job = read_job(DDP)
    there = on_ranks(job, 48)
    assert there.samples == 3 * job.samples
    assert there.recorded[0].held == job.recorded[0].held
    assert replace(on_ranks(there, 16), notes=job.notes) == job
    assert on_ranks(job, 16) is job


@pytest.mark.parametrize("tp", [1, 8])
def test_a_rank_that_is_apart_stays_so(tp: int) -> None:
    def logging(ranks: int) -> RecordedJob:
        job = decoder(ranks, layers=2, per_layer=40, tp=tp)
        (one,) = job.recorded
        wait = Entry(len(one.actions), "host", (len(one.entries) - 1,))
        first = replace(
            one, alike=(0,), actions=(*one.actions, HostWait("item")), entries=(*one.entries, wait)
        )
        return replace(job, recorded=(first, replace(one, rank=1, alike=tuple(range(1, ranks)))))

    assert replace(on_ranks(logging(64), 256), notes=()) == logging(256)


def staged() -> RecordedJob:
    """Return two stages, each with a replica that has the same gradients."""
    job = read_job(PIPELINE)
    reduction = GroupCall("dp", "all_reduce", "all_reduce", 4096, "float32")

    def reducing(one: RecordedRank) -> RecordedRank:
        entry = Entry(len(one.actions), after=(len(one.entries) - 1,))
        return replace(
            one, held={"parameters": 4096}, actions=(*one.actions, reduction), entries=(*one.entries, entry)
        )

    return replace(job, recorded=tuple(map(reducing, job.recorded)))


@pytest.mark.parametrize("layout", [{"tp": 8}, {"tp": 4, "pp": 2}], ids=str)
@pytest.mark.parametrize("ranks", [4, 16])
def test_ranks_of_tensor_parallelism_are_no_replicas(layout: dict[str, int], ranks: int) -> None:
    writing = Writing(
        StepTime(model="gpt2-medium:128", cluster="dgx-h100:1", batch=2, micro_batch=1, **layout).job
    )
    held = {rank: writing.step(rank).held for rank in range(8)}
    recorded = recorded_of(writing.program(), writing.job.roles, held.__getitem__)
    with pytest.raises(JobFileError, match=f"reduces the gradients of all .*; record it on {ranks} ranks"):
        on_ranks(recorded, ranks)


def test_gradients_may_be_of_parameters_that_are_not_frozen() -> None:
    job = read_job(DDP)
    (one,) = job.recorded
    frozen = replace(job, recorded=(replace(one, held={"parameters": 10 * one.held["parameters"]}),))
    assert on_ranks(frozen, 32).ranks == 32
    before_the_optimizer = one.entries[:-2]
    without = replace(frozen.recorded[0], entries=before_the_optimizer)
    with pytest.raises(JobFileError, match="reduces the gradients"):
        on_ranks(replace(frozen, recorded=(without,)), 32)


def test_a_rank_alone_grows_by_the_one_group_that_it_calls() -> None:
    job = on_ranks(read_job(DDP), 1)
    assert replace(on_ranks(job, 16), notes=()) == replace(read_job(DDP), notes=())
    (one,) = job.recorded
    more = (*one.actions, GroupCall("tp", "all_reduce", "all_reduce", 4, "float32"))
    groups = (*job.groups, RecordedGroup("tp", ((0,),)))
    with pytest.raises(JobFileError, match="a group of one rank does not show"):
        on_ranks(replace(job, groups=groups, recorded=(replace(one, actions=more),)), 16)


def test_stages_of_a_pipeline_grow_by_their_replicas() -> None:
    job = staged()
    there = on_ranks(job, 8)
    assert [one.partition for one in there.groups] == [
        (tuple(range(8)),), ((0, 1, 2, 3), (4, 5, 6, 7)), ((0, 4), (1, 5), (2, 6), (3, 7)),
    ]  # fmt: skip
    assert [(one.rank, one.alike) for one in there.recorded] == [(0, (0, 1, 2, 3)), (4, (4, 5, 6, 7))]
    messages = [action for one in there.recorded for action in one.actions if isinstance(action, PeerMessage)]
    assert [one.peer for one in messages] == [4, 4, 0, 0]
    assert [one.actions[-2].root for one in there.recorded] == [1, 4]
    assert check(Playing(there).program()).verdict == PROVED
    assert replace(on_ranks(there, 4), notes=job.notes) == job


def test_a_rank_apart_may_be_in_one_stage_of_several() -> None:
    job = on_ranks(staged(), 8)
    first, second = job.recorded
    own = tuple(replace(one, peer=1) if isinstance(one, PeerMessage) else one for one in second.actions)
    apart = (replace(second, alike=(4,)), replace(second, rank=5, alike=(5, 6, 7), actions=own))
    there = on_ranks(replace(job, recorded=(first, *apart)), 12)
    assert [one.alike for one in there.recorded] == [tuple(range(6)), (6,), (7, 8, 9, 10, 11)]


def test_buffers_of_whole_gradients_and_norms_keep_their_sizes() -> None:
    job = decoder(64, layers=2, per_layer=40)
    (one,) = job.recorded
    (scatter,) = (
        action
        for action in one.actions
        if isinstance(action, GroupCall) and action.collective == "reduce_scatter"
    )
    buffer = -(-scatter.nbytes // 512) * 512
    norm = Operator("aten._fused_rms_norm", (Shaped((64, 8), "bfloat16"), Shaped((8,), "bfloat16")))
    number, changes = len(one.actions), (buffer, 6400, -buffer, -6400 - buffer, -6400)
    entries = [
        Entry(number, memory=(("gradients", change),)) for change in (*changes[:2], buffer, *changes[2:])
    ]
    there = on_ranks(
        replace(
            job, recorded=(replace(one, actions=(*one.actions, norm), entries=(*one.entries, *entries)),)
        ),
        128,
    ).recorded[0]  # fmt: skip
    assert there.actions[number] == norm
    assert [entry.memory[0][1] for entry in there.entries[len(one.entries) :]] == [
        buffer, 3200, buffer, -buffer, -3200 - buffer, -3200,
    ]  # fmt: skip


def test_gathers_of_numbers_have_those_of_every_rank() -> None:
    there = on_ranks(calling(call("all_gather", 16 * 24)), 64)
    assert there.recorded[0].actions[0].nbytes == 64 * 24


def calling(*calls: GroupCall | PeerMessage, group: tuple[tuple[int, ...], ...] | None = None) -> RecordedJob:
    job = read_job(DDP)
    (one,) = job.recorded
    groups = job.groups if group is None else (RecordedGroup("world", group),)
    return replace(job, groups=groups, recorded=(replace(one, actions=(*calls, *one.actions[len(calls) :])),))


def call(kind: str, nbytes: int = 4096, **more: object) -> GroupCall:
    return GroupCall("world", kind, kind, nbytes, "float32", **more)


ODD = (tuple(range(3)), tuple(range(3, 16)))


@pytest.mark.parametrize(
    ("job", "ranks", "reason"),
    [
        (calling(PeerMessage("world", 1, 64, is_send=True)), 32, "along every dimension"),
        (staged(), 7, "not a multiple of its 2 ranks"),
        (read_job(PIPELINE), 8, "no dimension reduces the gradients"),
        (calling(call("all_to_all")), 32, "depend on the number of ranks"),
        (calling(call("all_gather", 16 * 2048)), 32, "may grow with the number of ranks"),
        (calling(call("reduce_scatter", 4 * 30)), 32, "would need padding"),
        (calling(call("reduce_scatter")), 32, "not the gradients of all parameters"),
        (calling(call("broadcast", root=0), call("broadcast", root=1)), 32, "a group has several roots"),
        (calling(call("broadcast", root=9)), 8, "does not exist on fewer ranks"),
        (calling(group=ODD), 32, "along every dimension"),
        (decoder(64, tp=8, layers=1, per_layer=40), 100, "not a multiple of its 8 ranks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_recording_does_not_say_is_refused(job: RecordedJob, ranks: int, reason: str) -> None:
    with pytest.raises(JobFileError, match=rf"recorded on \d+ ranks: .*{reason}.*; record it on {ranks}"):
        on_ranks(job, ranks)
