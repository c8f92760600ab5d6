"""Torch's own accounting of memory: what storages hold, and ranks alone against ranks of a real job."""

from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from ringside.real.training.decoders import DecoderPart
from ringside.real.training.job import SmallDecoder, SmallGpt
from ringside.real.training.memory import (
    ACTIVATIONS,
    BUFFERS,
    PARAMETERS,
    TEMPORARIES,
    MemoryJob,
    measure_alone,
    measure_together,
)
from ringside.real.training.storages import StorageRecorder
from ringside.validation.training.program import layers_of
from tests.tiers import slow_or_proof

TINY = SmallDecoder(hidden=32, inner=48, heads=4, key_value_heads=2, sequence=16, vocabulary=64)
TOKENS = TINY.batch * TINY.sequence


def test_storages_count_until_their_last_tensor_is_gone():
    with StorageRecorder() as recorder:
        first = torch.zeros(256)
        view = first[:16]
        del first
        recorder.start()
        second = torch.ones(512)
        del second, view
        third = torch.ones(128)
    assert recorder.peak.operator == "aten.ones"
    assert recorder.peak.by_kind() == {BUFFERS: 1024, ACTIVATIONS: 2048}
    assert third.shape == (128,)


def test_a_resized_storage_counts_its_new_bytes():
    with StorageRecorder() as recorder:
        tensor = torch.zeros(256)
        tensor.untyped_storage().resize_(0)
        recorder.start()
        tensor.untyped_storage().resize_(512)
    assert recorder.peak.nbytes == 512
    assert recorder.peak.operator == "resize_"


def test_a_wrapper_of_a_tensor_that_is_awaited_has_no_memory_of_its_own():
    with StorageRecorder() as recorder:
        recorder.start()
        tensor = torch.ones(256)
        recorder.tell(ACTIVATIONS, AsyncCollectiveTensor(tensor))
    assert recorder.peak.by_kind() == {ACTIVATIONS: 1024}


def kept(model: SmallDecoder) -> float:
    """Return the elements that one block of the model keeps for backward, without its output."""
    with FakeTensorMode(), StorageRecorder() as recorder:
        part = DecoderPart(model, range(model.layers))
        block = part.layers["0"]
        recorder.start()
        value = torch.zeros(model.batch, model.sequence, model.hidden, requires_grad=True)
        out = block(value)
        del value
        recorder.tell(PARAMETERS, [list(part.parameters()), out])
        live = [one for one in recorder._live.values() if one.holds in (ACTIVATIONS, TEMPORARIES)]
        return sum(one.nbytes for one in live) / 4


@pytest.mark.parametrize("name", ["decoder", "gpt"])
def test_a_block_keeps_what_its_operators_save(name):
    model = TINY if name == "decoder" else SmallGpt(hidden=32, inner=48, heads=4, sequence=16, vocabulary=64)
    width, inner, heads, few = 32, 48, 4, 16
    # inputs and outputs of norms; query, keys and values, attention's output and logarithms of sums
    of_attention = width + 2 * few + width if name == "decoder" else 3 * width + width
    norms = 4 * width + 2 * (1 if name == "decoder" else 2)
    # gate, its activation, up and their product; or GELU's input and output
    feed = (4 if name == "decoder" else 2) * inner
    assert kept(model) == TOKENS * (norms + of_attention + heads + feed)
    # what the stack counts
    assert 4 * kept(model) == layers_of(MemoryJob(model=model, shard=2))[1].kept_nbytes


@pytest.mark.gloo
@pytest.mark.parametrize(
    "job",
    slow_or_proof(
        [
            MemoryJob(model=TINY, shard=2),
            MemoryJob(model=TINY, strategy="ddp", replicate=2),
            MemoryJob(model=TINY, tensor=2, sequence_parallel=True),
        ]
    ),
    ids=["fsdp", "ddp", "tensor"],
)
def test_a_rank_alone_takes_the_memory_that_it_takes_among_others(job):
    (alone,) = measure_alone([job])
    assert alone == measure_together(job)[0]


def test_a_rank_holds_its_part_of_parameters_and_states():
    (own,) = measure_alone([MemoryJob(model=TINY, shard=2)])
    parameters = own.by_kind[PARAMETERS]
    whole = 2 * TINY.hidden * TINY.vocabulary + TINY.hidden * (5 + 2 * (96 + 3 * 48))
    assert parameters == 4 * whole / 2
    # each of Adam's states has a count of its steps
    assert own.by_kind["optimizer"] == 2 * parameters + 4 * 21


@pytest.mark.slow
@pytest.mark.gloo
def test_the_first_stage_keeps_the_activations_of_more_micro_batches():
    job = MemoryJob(model=replace(TINY, layers=4), pipeline=2, micro_batches=4)
    first, last = measure_together(job)
    of_one = last.by_kind[ACTIVATIONS] - 4 * TOKENS * TINY.vocabulary
    assert 2 * of_one * 0.9 < first.by_kind[ACTIVATIONS] < 2 * of_one * 1.1
