"""Jobs of thousands of ranks: what recording them costs is up to the script, not to the ranks."""

import resource
from dataclasses import replace
from pathlib import Path

import pytest

from ringside.real.questions.recording import ScriptRecording
from ringside.sim.recorded.job import JobFileError
from ringside.sim.recorded.ranks import on_ranks
from tests.tiers import slow_or_proof

WIDTH = 8192
"""Columns of the script's layers: every rank has a share of each parameter."""

SCRIPT = Path(__file__).parents[1] / "scripts" / "tensor.py"


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(10, 3), (3, 10), (1, 1), (0, 4)])
def test_a_chunk_is_that_of_all_chunks_that_pytorch_makes(shape):
    torch = pytest.importorskip("torch")
    from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty

    from ringside.real.record.script.sharding import LazyChunks

    tensor = torch.arange(shape[0] * shape[1]).reshape(shape)
    for dim in (0, 1):
        for count in (1, 2, 4, 7, 16):
            every, own = _chunk_with_empty(tensor, count, dim=dim), LazyChunks(tensor, count, dim=dim)
            assert len(own) == len(every)
            assert [(one.shape, one.tolist()) for one in own] == [(one.shape, one.tolist()) for one in every]
            assert own[-1].shape == every[-1].shape
            assert [one.shape for one in own[1:3]] == [one.shape for one in every[1:3]]


@pytest.mark.parametrize(
    ("case", "ranks", "roles"),
    slow_or_proof(
        [
            ("tensor.py sharded 14", 12, [0, 8, 10]),  # 3 rows on each of 4 ranks, then 2, then none
            ("tensor.py sharded 50", 8, [0, 6]),
            ("fsdp2.py", 10, [0, 9]),
            ("fsdp2.py 2", 10, [0, 4]),
            ("fsdp1.py decay", 16, [0, 7, 8, 9, 15]),  # parts of two matrices, and of biases
            ("decoder.py fsdp1", 16, [*range(9), 10, 11, 15]),
        ]
    ),
)
def test_ranks_with_uneven_shards_are_recorded_as_if_each_were(case, ranks, roles):
    script, *arguments = case.split()
    command = [str(SCRIPT.with_name(script)), *arguments]
    of_roles, of_all = (
        ScriptRecording(command=command, ranks=ranks, nodes=1, every_rank=every, timeout=280.0).ask().job
        for every in (False, True)
    )
    assert [one.rank for one in of_roles.recorded] == roles
    assert of_roles.groups == of_all.groups
    by_rank = {one.rank: one for one in of_roles.recorded}
    for one in of_all.recorded:
        role = by_rank[of_roles.representatives[one.rank]]
        assert (role.actions, role.entries, role.held) == (one.actions, one.entries, one.held)


@pytest.mark.parametrize(
    ("few", "many"),
    slow_or_proof(
        [
            (("fsdp2.py 2", 4), ("fsdp2.py 4", 8)),  # two of each replica
            (("ddp.py", 2), ("ddp.py", 8)),
            (("pipeline.py 2", 4), ("pipeline.py 4", 8)),
        ]
    ),
)
def test_a_job_on_more_ranks_is_what_is_recorded_there(few, many):
    first, second = (
        ScriptRecording(
            command=[str(SCRIPT.with_name(script)), *arguments], ranks=ranks, nodes=1, timeout=280.0
        ).ask().job
        for (script, *arguments), ranks in ((words.split(), ranks) for words, ranks in (few, many))
    )  # fmt: skip
    there = on_ranks(first, second.ranks)
    assert list(map(without_peers, there.recorded)) == list(map(without_peers, second.recorded))
    assert {one.name: sorted(one.partition) for one in there.groups} == {
        one.name: sorted(one.partition) for one in second.groups
    }


@pytest.mark.slow
def test_ranks_of_tensor_parallelism_do_not_grow():
    job = ScriptRecording(
        command=[str(SCRIPT.with_name("tensor.py")), "plain"], ranks=4, nodes=1, timeout=280.0
    ).ask().job  # fmt: skip
    with pytest.raises(JobFileError, match="no dimension reduces the gradients"):
        on_ranks(job, 8)


def without_peers(one):
    """Return a rank with lanes of messages called by their group alone."""
    entries = tuple(replace(entry, lane=entry.lane.partition(":")[0]) for entry in one.entries)
    return replace(one, entries=entries)


def recorded(ranks):
    """Return the operators and collectives of rank 0, and the processor seconds of the recording."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = ScriptRecording(command=[str(SCRIPT), "sharded", str(WIDTH)], ranks=ranks, timeout=280.0).ask()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    names = [answer.job.recorded[0].actions[one.action].name for one in answer.job.recorded[0].entries]
    return names, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.proof
def test_sixteen_thousand_ranks_cost_what_sixty_four_do():
    names, seconds = recorded(64)
    of_many, seconds_of_many = recorded(16_384)
    assert of_many == names
    assert seconds_of_many < 1.5 * seconds
