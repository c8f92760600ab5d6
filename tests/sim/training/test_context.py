"""Context parallelism: compute and messages of each rank, and proved, lawful steps."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.compute.prices import StackOnGpu, prices_on
from ringside.sim.program.check import PROVED, check
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layers import Exchange, Kernels
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.memory.optimizers import find_optimizer
from ringside.sim.training.parallel import simulate_parallel
from ringside.sim.training.program import Writing
from ringside.sim.training.tensor.alone import pass_s
from ringside.sim.training.tensor.context import BALANCED, METHODS, UNMASKED, Attention, ContextParallel
from ringside.sim.training.tensor.cut import Pull
from ringside.sim.training.tensor.decoder import decoder_on_rank
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.devices import Roofline, device

GPU = device("a100")
SMALL = Decoder(
    name="small", layers=2, width=512, heads=8, key_value_heads=4, hidden=1024, vocabulary=1024,
    sequence=4096, longest=4096,
)  # fmt: skip
degrees = st.integers(2, 12)
rings = st.sampled_from(["ring", "zigzag", "all-gather"])


def attention(degree, method, bytes_per_s=inf):
    return Attention(
        context=ContextParallel(degree=degree, method=method), roofline=Roofline(1e12, bytes_per_s, 2),
        dtype="bfloat16", forward_s=1.0, backward_s=2.0, query=4096, key_value=1024,
    )  # fmt: skip


def seconds(parts):
    return sum(part.seconds for part in parts if isinstance(part, Kernels))


def sent(parts):
    return [part.collective for part in parts if isinstance(part, Exchange)]


@given(st.sampled_from(METHODS))
def test_one_rank_does_all_and_sends_nothing(method):
    alone = attention(1, method)
    assert alone.forward == (Kernels(1.0),)
    assert alone.backward == (Kernels(2.0),)
    assert not alone.buffers_nbytes


@given(degrees, st.sampled_from([*BALANCED, "ulysses"]))
def test_balanced_ranks_have_their_share_of_the_scores(degree, method):
    assert seconds(attention(degree, method).backward) == pytest.approx(2.0 / degree)


@given(degrees)
def test_the_last_rank_of_a_naive_ring_has_all_blocks_but_half_of_one(degree):
    """Of n blocks n - 1/2, where the mean is n / 2."""
    taken = seconds(attention(degree, "ring").backward)
    assert taken * degree / 2.0 == pytest.approx((2 * degree - 1) / degree)


@given(degrees, rings)
def test_unmasked_blocks_are_quicker_in_forward_and_merges_are_paid_for(degree, method):
    free, paid = attention(degree, method), attention(degree, method, 1e9)
    shares = seconds(free.backward) / 2.0
    own = 1 / degree**2
    assert seconds(free.forward) == pytest.approx(own + (shares - own) * UNMASKED)
    # the type, a difference, a product and a sum, on 2 and 4 bytes an element
    merge = 4096 * (6 + 12 + 8 + 12) / 1e9
    assert seconds(paid.forward) - seconds(free.forward) == pytest.approx((degree - 1) * merge)


@given(degrees, st.sampled_from(["ring", "zigzag"]))
def test_keys_and_values_go_around_once_and_their_gradients_return_in_float32(degree, method):
    parts = attention(degree, method)
    around = [("sendrecv", 2 * 1024 * 2)] * (degree - 1)
    assert [(one.kind, one.nbytes) for one in sent(parts.forward)] == around
    back = [(one.kind, one.nbytes, one.dtype) for one in sent(parts.backward)]
    assert back.count(("sendrecv", 2 * 1024 * 4, "float32")) == degree
    assert len(back) == 2 * degree - 1


@given(degrees)
def test_what_is_gathered_is_gathered_once_a_pass(degree):
    parts = attention(degree, "all-gather")
    for one, others in ((parts.forward, 0), (parts.backward, degree)):
        first, *rest = sent(one)
        assert (first.kind, first.nbytes) == ("all_gather", degree * 2 * 1024 * 2)
        assert [found.kind for found in rest] == ["sendrecv"] * others


def test_heads_change_places_with_tokens_in_four_all_to_alls_each_way():
    parts = attention(4, "ulysses")
    assert [one.nbytes for one in sent(parts.forward)] == [8192, 2048, 2048, 8192]
    assert [one.nbytes for one in sent(parts.backward)] == [8192, 8192, 2048, 2048]


@given(degrees, rings, st.floats(0.0, 0.01))
def test_exchanges_hide_behind_blocks_but_for_the_last_gradients(degree, method, each):
    """Two a step at the most, each shorter than a third of the shortest block."""
    parts, time = attention(degree, method), min(each, 0.3 / degree**2)
    assert pass_s(parts.forward, lambda _: time) == pytest.approx(seconds(parts.forward))
    assert pass_s(parts.backward, lambda _: time) == pytest.approx(seconds(parts.backward) + time)


def job(layout, ranks=8):
    pull = Pull(1e11, multiprocessors=108) if layout.async_tp else None
    model = decoder_on_rank(SMALL, layout, StackOnGpu(prices_on(GPU, "bf16")), "float32", pull=pull)
    return ParallelJob(
        model=model, layout=layout, mesh=mesh_of(layout, ranks, 8), batch=2, precision="bfloat16",
        optimizer=find_optimizer("adam"), costs=Costs(memory_bandwidth=GPU.streaming),
    )  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "hsdp"])
def test_steps_are_proved_and_as_long_as_their_parts(method, strategy):
    more = {"shard": 2} if strategy == "hsdp" else {}
    layout = Layout(strategy=strategy, cp=2, cp_method=method, clip=True, **more)
    made = job(layout)
    assert check(Writing(made).program()).verdict == PROVED
    step = simulate_parallel(made, Libraries("ideal", "star:8", {"bandwidth": "50GB/s"}, 8))
    (stage,) = step.stages
    assert stage.busy_s + stage.exposed_s + stage.bubble_s == pytest.approx(step.step_s)
    assert step.samples == 8
    assert step.tokens == 8 * SMALL.sequence


def test_context_parallel_ranks_hold_fewer_activations_and_as_many_parameters():
    libraries = Libraries("ideal", "star:8", {"bandwidth": "50GB/s"}, 8)
    alone, shared = (
        simulate_parallel(job(Layout(strategy="fsdp", cp=degree)), libraries) for degree in (1, 4)
    )
    few, many = (step.stages[0].peak.by_pool for step in (shared, alone))
    assert few["activations"] < many["activations"] / 2
    assert few["parameters"] == many["parameters"]


def test_pipelines_pass_on_a_rank_s_own_tokens():
    layout = Layout(cp=2, pp=2)
    made = job(layout)
    assert made.between_nbytes == (SMALL.sequence // 2 * SMALL.width * 2,)
    assert check(Writing(made).program()).verdict == PROVED


def test_asynchronous_tensor_parallelism_leaves_no_exchange_in_the_layers():
    blocking, hiding = (
        job(Layout(strategy="fsdp", tp=4, sequence_parallel=True, async_tp=one)) for one in (False, True)
    )
    kinds = {len(sent(made.model.layers[1].forward)) for made in (blocking,)}
    assert kinds == {4}
    assert not sent(hiding.model.layers[1].forward)


@given(st.integers(1, 20000), st.integers(1, 20000), st.integers(1, 16))
def test_pieces_never_compute_quicker_than_the_whole(rows, outputs, pieces):
    assert Pull(1e9, multiprocessors=132).lost(rows, outputs, pieces) >= 1
    assert Pull(1e9).lost(rows, outputs, pieces) == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"cp": 0}, "`cp` 0; write 1 or more"),
        ({"cp": 2, "cp_method": "rings"}, "unknown context-parallel method 'rings'; write ring "),
        ({"tp": 2, "async_tp": True}, "add `sequence_parallel`"),
    ],
)
def test_layouts_that_cannot_be_are_refused(words, complaint):
    with pytest.raises(ValueError, match=complaint):
        Layout(**words)


@pytest.mark.parametrize(
    ("layout", "complaint"),
    [
        (Layout(cp=8, cp_method="ulysses"), "4 key-value heads of a rank do not divide by 8"),
        (Layout(cp=3), "does not divide into 6 pieces for 3 context-parallel ranks; write `seq` 4098"),
    ],
)
def test_tokens_and_heads_that_do_not_divide_are_refused(layout, complaint):
    with pytest.raises(ValueError, match=complaint):
        decoder_on_rank(SMALL, layout, StackOnGpu(prices_on(GPU, "bf16")), "float32")


def test_meshes_that_do_not_divide_are_refused():
    with pytest.raises(LayoutError, match="12 ranks do not divide by `tp` 1 times `cp` 5 times `pp` 1"):
        mesh_of(Layout(cp=5), 12, 4)
    with pytest.raises(LayoutError, match="`tp` 2 times `cp` 3 ranks straddle machines of 8"):
        mesh_of(Layout(tp=2, cp=3), 48, 8)
    assert mesh_of(replace(Layout(cp=2), tp=2), 16, 8).context == 2
