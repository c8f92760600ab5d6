"""Jobs of thousands of ranks: what recording them costs is up to the script, not to the ranks."""

import resource
from pathlib import Path

import pytest

from ringside.real.questions.recording import ScriptRecording

WIDTH = 8192
"""Columns of the script's layers: every rank has a share of each parameter."""

SCRIPT = Path(__file__).parents[1] / "scripts" / "tensor.py"


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(10, 3), (3, 10), (1, 1), (0, 4)])
def test_a_chunk_is_that_of_all_chunks_that_pytorch_makes(shape):
    torch = pytest.importorskip("torch")
    from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty

    from ringside.real.record.script.chunks import LazyChunks

    tensor = torch.arange(shape[0] * shape[1]).reshape(shape)
    for dim in (0, 1):
        for count in (1, 2, 4, 7, 16):
            every, own = _chunk_with_empty(tensor, count, dim=dim), LazyChunks(tensor, count, dim=dim)
            assert len(own) == len(every)
            assert [(one.shape, one.tolist()) for one in own] == [(one.shape, one.tolist()) for one in every]
            assert own[-1].shape == every[-1].shape
            assert [one.shape for one in own[1:3]] == [one.shape for one in every[1:3]]


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
