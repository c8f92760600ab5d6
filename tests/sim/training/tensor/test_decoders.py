"""A decoder on tensor-parallel ranks: parameters, work and exchanges of each rank."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.compute.prices import Prices, StackOnGpu, prices_on
from ringside.sim.compute.stacks import STACKS
from ringside.sim.training.layers import Exchange, Kernels, Pass, RankLayer, arriving, without_loss
from ringside.sim.training.step import Utilization
from ringside.sim.training.tensor.activations import Activations
from ringside.sim.training.tensor.costs import Numerics
from ringside.sim.training.tensor.cut import Cut, Pull, TensorParallel
from ringside.sim.training.tensor.layers import rank_layers, replicated_parameters
from ringside.sim.training.tensor.passes import PassCosts
from ringside.sim.workload.decoder import DECODERS, Decoder, decoder
from ringside.sim.workload.devices import Roofline, device

PACE = StackOnGpu(Prices(roofline=Roofline(1e12, 1e12, 2)))
TINY = Decoder(
    name="tiny", layers=2, width=64, heads=8, key_value_heads=4, hidden=128, vocabulary=1024, sequence=32,
    longest=32, gated=True, norm="rms", biases=False,
)  # fmt: skip
GPT = replace(TINY, gated=False, norm="layer", biases=True, key_value_heads=8, positions=32, tied=True)
WIDE = replace(TINY, head=24, qk_norm=True)
STYLES = [TensorParallel(degree=2, style=style, sequence=sequence)
          for style in ("megatron", "dtensor") for sequence in (False, True)]  # fmt: skip


def made(model: Decoder, parallel: TensorParallel, **how: object) -> tuple[RankLayer, ...]:
    return rank_layers(model, PACE, parallel=parallel, numerics=Numerics(**how))  # type: ignore[arg-type]


def counts(layers: tuple[RankLayer, ...], way: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for layer in layers:
        for part in getattr(layer, way):
            if isinstance(part, Exchange):
                found[part.collective.kind] = found.get(part.collective.kind, 0) + 1
    return found


def seconds(one: Pass) -> float:
    return sum(part.seconds for part in one if isinstance(part, Kernels))


@given(
    st.sampled_from([TINY, GPT, WIDE]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["megatron", "dtensor"]),
    st.booleans(),
)
def test_ranks_together_have_the_model_and_copies_of_what_is_not_cut(
    model: Decoder, degree: int, style: str, sequence: bool
) -> None:
    layers = made(model, TensorParallel(degree=degree, style=style, sequence=sequence))
    own = sum(tensor.count for layer in layers for tensor in layer.parameters)
    copied = sum(tensor.count for tensor in replicated_parameters(layers))
    shared_groups = max(1, degree // model.key_value_heads)
    head = model.head_width
    extra = 2 * model.layers * (model.width * head) * model.key_value_heads * (shared_groups - 1)
    assert degree * (own - copied) + copied == model.num_parameters + extra


@given(
    st.sampled_from([TINY, WIDE]), st.sampled_from([1, 2, 4]), st.sampled_from(["megatron", "dtensor"]),
    st.sampled_from([1, 3]),
)  # fmt: skip
def test_products_are_shared_out_and_none_is_added(
    model: Decoder, degree: int, style: str, micro_batch: int
) -> None:
    arithmetic = StackOnGpu(Prices(roofline=Roofline(1.0, 1e300, 2)))

    def flops(parallel: TensorParallel, way: str) -> float:
        how = Numerics(attention="full")
        layers = rank_layers(model, arithmetic, micro_batch=micro_batch, parallel=parallel, numerics=how)
        return sum(seconds(getattr(layer, way)) for layer in layers)

    cut = TensorParallel(degree=degree, style=style)
    assert degree * flops(cut, "forward") == pytest.approx(micro_batch * model.flops())
    assert flops(cut, "backward") == pytest.approx(2 * flops(cut, "forward"))
    split = flops(cut, "input_gradient") + flops(cut, "weight_gradient")
    assert split == pytest.approx(flops(cut, "backward"))


# torch 2.13 under CommDebugMode, 1 and 2 layers with q, k, v, w1 and w3 apart: 2 L + 1 all-reduces forward
# and 5 L + 1 backward, with sequence parallelism 2 L + 1 of each of both ways (and one of the results)
@pytest.mark.parametrize("layers", [1, 2])
def test_dtensor_exchanges_as_often_as_torch_was_seen_to(layers: int) -> None:
    model = replace(TINY, layers=layers)
    plain = made(model, TensorParallel(degree=2, style="dtensor", gathers_logits=True))
    assert counts(plain, "forward") == {"all_reduce": 2 * layers + 1, "all_gather": 1}
    assert counts(plain, "backward") == {"all_reduce": 5 * layers + 1}
    cut = made(model, TensorParallel(degree=2, style="dtensor", sequence=True, gathers_logits=True))
    assert counts(cut, "forward") == {"reduce_scatter": 2 * layers + 1, "all_gather": 2 * layers + 2}
    assert counts(cut, "backward") == {"reduce_scatter": 2 * layers + 1, "all_gather": 2 * layers + 1}
    loss = made(model, TensorParallel(degree=2, style="dtensor", sequence=True))[-1]
    small = [part.collective for part in loss.forward if isinstance(part, Exchange)][1:]
    assert [(one.kind, one.nbytes, one.dtype) for one in small] == [("all_reduce", 4 * 32, "float32")] * 3


@pytest.mark.slow
@pytest.mark.gloo
def test_dtensor_exchanges_as_often_as_the_installed_torch_does(tmp_path: Path) -> None:
    file = Path(__file__).with_name("real_counts.py")
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(file), str(rank), str(tmp_path)],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]  # fmt: skip
    found, _ = (process.communicate(timeout=120)[0] for process in processes)
    for case, real in json.loads(found).items():
        layers, sequence, whole = map(int, case.split())
        parallel = TensorParallel(
            degree=2, style="dtensor", sequence=bool(sequence), gathers_logits=bool(whole)
        )
        ours = made(replace(TINY, layers=layers), parallel)
        assert {way: counts(ours, way) for way in ("forward", "backward")} == real, case


def test_megatron_exchanges_twice_each_way_and_gathers_again_for_the_weights() -> None:
    plain, cut = (made(GPT, TensorParallel(degree=2, sequence=way))[1:2] for way in (False, True))
    assert counts(plain, "forward") == counts(plain, "backward") == {"all_reduce": 2}
    assert counts(cut, "forward") == {"all_gather": 2, "reduce_scatter": 2}
    assert counts(cut, "backward") == {"all_gather": 4, "reduce_scatter": 2}
    assert counts(cut, "input_gradient") == {"all_gather": 2, "reduce_scatter": 2}
    assert counts(cut, "weight_gradient") == {"all_gather": 2}
    hidden = [part.overlaps for part in plain[0].backward if isinstance(part, Exchange)]
    exposed = [part.overlaps for part in plain[0].forward if isinstance(part, Exchange)]
    assert (hidden, exposed) == ([True, True], [False, False])


@pytest.mark.parametrize("parallel", STYLES)
def test_every_exchange_of_a_layer_is_of_all_its_tokens(parallel: TensorParallel) -> None:
    layer = rank_layers(TINY, PACE, micro_batch=3, parallel=parallel)[1]
    sizes = {
        part.collective.nbytes for part in (*layer.forward, *layer.backward) if isinstance(part, Exchange)
    }
    assert sizes == {3 * 32 * 64 * 2}


@pytest.mark.parametrize("parallel", [*STYLES, replace(STYLES[2], gathers_logits=True)])
def test_a_loss_that_is_cut_off_takes_its_work_along_and_no_parameters(parallel: TensorParallel) -> None:
    layers = made(TINY, parallel)
    *others, head, loss = without_loss(layers)
    assert tuple(others) == layers[:-1]
    assert head.parameters == layers[-1].parameters
    assert head.kept == layers[-1].kept
    assert (loss.parameters, loss.kept) == ((), ())
    for way in ("forward", "backward", "input_gradient"):
        assert 0 < seconds(getattr(loss, way)) < seconds(getattr(head, way))
        assert seconds(getattr(head, way)) + seconds(getattr(loss, way)) == pytest.approx(
            seconds(getattr(layers[-1], way))
        )
        assert counts((head, loss), way) == counts(layers[-1:], way)
    for held in ("forward_nbytes", "backward_nbytes"):
        assert max(getattr(head, held), getattr(loss, held)) == getattr(layers[-1], held)


def test_the_module_that_backward_begins_with_holds_what_a_layers_backward_holds() -> None:
    layer = made(TINY, TensorParallel())[1]
    modules = arriving([layer])
    assert [one.backward_nbytes for one in modules] == [*[0] * (len(modules) - 1), layer.backward_nbytes]


@pytest.mark.parametrize("parallel", STYLES)
def test_dtensor_makes_the_gradient_of_the_whole_vocabulary(parallel: TensorParallel) -> None:
    embedding = made(TINY, parallel)[0]
    assert embedding.nbytes == 2 * 1024 * 64 // 2
    more = embedding.nbytes if parallel.style == "dtensor" else 0
    assert embedding.unsharded_nbytes == more
    assert embedding.backward_nbytes == 2 * more


def test_one_rank_exchanges_nothing() -> None:
    layers = made(TINY, TensorParallel(sequence=True), checkpointing="full")
    assert not any(isinstance(part, Exchange) for one in layers for part in (*one.forward, *one.backward))
    assert all(isinstance(part, Kernels) for part in layers[1].recomputed)
    assert layers[0].recomputed == layers[-1].recomputed == ()


def test_asynchronous_tensor_parallelism_hides_copies_behind_products() -> None:
    model = decoder("llama3-70b:8192")
    pace = StackOnGpu(prices_on(device("h100"), "bf16"))

    def layer(pull: Pull | None) -> RankLayer:
        parallel = TensorParallel(degree=8, style="dtensor", sequence=True, pull=pull)
        return rank_layers(model, pace, parallel=parallel)[1]

    blocking, hiding = layer(None), layer(Pull(3e11, 0.0))
    assert not any(isinstance(part, Exchange) for part in (*hiding.forward, *hiding.backward))
    gathered = model.sequence * model.width * 2 / 3e11
    added = seconds(hiding.forward) - seconds(blocking.forward)
    assert 4 / 8 * gathered <= added < 4 * gathered
    slow = seconds(layer(Pull(1e9, 0.0)).forward)
    assert slow == pytest.approx(seconds(blocking.forward), rel=1) or slow > 4 * 0.875 * gathered


@pytest.mark.parametrize(
    ("model", "parallel", "message"),
    [
        ("llama3-8b", {"degree": 3}, "32 heads do not divide by 3 .* write one of 1, 2, 4, 8, 16, 32"),
        ("gpt2-xl", {"degree": 2}, "25 heads do not divide by 2 .* write one of 1, 5, 25"),
        ("gpt2", {"degree": 2, "style": "dtensor"}, "50257 entries of its vocabulary do not divide"),
        ("llama3-8b:31", {"degree": 2, "sequence": True}, "31 tokens of a sequence do not divide by 2"),
        ("llama3-8b", {"degree": 0}, "among 0 ranks; write 1 or more"),
        ("llama3-8b", {"style": "colossal"}, "write megatron or dtensor"),
        ("llama3-8b", {"degree": 2, "pull": Pull(1e9)}, "needs sequence parallelism"),
    ],
)
def test_what_does_not_divide_is_refused_with_what_would_fit(
    model: str, parallel: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        rank_layers(decoder(model), PACE, parallel=TensorParallel(**parallel))  # type: ignore[arg-type]


def test_wrong_numerics_and_micro_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown checkpointing 'some'; write one of none, selective, full"):
        Numerics(checkpointing="some")
    with pytest.raises(ValueError, match="a micro-batch of 0 sequences; write 1 or more"):
        rank_layers(TINY, PACE, micro_batch=0)
    with pytest.raises(ValueError, match="unknown decoder 'llama4'"):
        decoder("llama4")
    with pytest.raises(ValueError, match="'x' is not a number of tokens"):
        decoder("llama3-8b:x")


def test_more_ranks_than_key_value_heads_have_copies_of_them() -> None:
    cut = Cut(decoder("llama3-8b"), TensorParallel(degree=16))
    assert (cut.key_value, cut.query) == (128, 256)
    with pytest.raises(ValueError, match="6 key-value heads neither divide by 4"):
        Cut(replace(TINY, heads=12, width=96, key_value_heads=6), TensorParallel(degree=4))


def published(cut: Cut, batch: int, checkpointing: str) -> int:
    """Return the bytes that a layer of Megatron keeps, without the norms' statistics as the paper counts."""
    numerics = Numerics(checkpointing=checkpointing, attention="unfused", dropout=True)
    kept = replace(STACKS["megatron"].kept, layer_statistics=0)
    return sum(Activations(cut=cut, batch=batch, numerics=numerics, kept=kept).kept_terms.values())


# Korthikanti et al., arXiv:2205.05198, figure 1 and table 3: models of section 6 on 8 tensor-parallel ranks
@pytest.mark.parametrize(
    ("layers", "width", "heads", "batch", "in_flight", "plain_gib", "both_gib"),
    [
        (48, 6144, 64, 4, 1, 59.25, 9.5625),
        (96, 12288, 96, 1, 1 + 7 / 24, 66.84375, 12.3515625),
        (105, 20480, 128, 1, 1 + 34 / 105, 114.0234375, 23.076171875),
        (128, 25600, 160, 1, 1, 131.25, 26.5625),
    ],
)
def test_activations_are_those_of_the_published_formula(
    layers: int, width: int, heads: int, batch: int, in_flight: float, plain_gib: float, both_gib: float
) -> None:
    model = replace(
        DECODERS["gpt3-175b"], layers=layers, width=width, heads=heads, key_value_heads=heads,
        hidden=4 * width,
    )  # fmt: skip

    def gib(checkpointing: str, *, sequence: bool) -> float:
        cut = Cut(model, TensorParallel(degree=8, sequence=sequence))
        return published(cut, batch, checkpointing) * layers * in_flight / 2**30

    assert gib("none", sequence=False) == plain_gib
    assert gib("selective", sequence=True) == both_gib
    whole = 2 * batch * 2048 * width * layers * in_flight / 2**30
    assert gib("full", sequence=False) == whole
    scores = 5 * heads * 2048 / width
    assert gib("none", sequence=True) == pytest.approx(whole / 2 * (34 + scores) / 8)
    assert gib("selective", sequence=False) == pytest.approx(whole / 2 * (10 + 24 / 8))


# The same paper, figure 7, read off its bars: activations in % of those of tensor parallelism alone
@pytest.mark.parametrize(
    ("width", "heads", "sequence", "selective", "both", "full"),
    [
        (6144, 64, 66.84, 49.42, 16.18, 7.64),
        (12288, 96, 62.04, 56.53, 18.49, 8.71),
        (20480, 128, 58.31, 62.04, 20.27, 9.42),
        (25600, 160, 58.31, 62.04, 20.27, 9.42),
    ],
)
def test_shares_of_activations_are_the_published_ones(
    width: int, heads: int, sequence: float, selective: float, both: float, full: float
) -> None:
    model = replace(DECODERS["gpt3-175b"], width=width, heads=heads, key_value_heads=heads, hidden=4 * width)

    def kept(checkpointing: str, *, sequence: bool, degree: int = 8) -> int:
        cut = Cut(model, TensorParallel(degree=degree, sequence=sequence))
        return published(cut, 1, checkpointing)

    plain = kept("none", sequence=False) / 100
    assert kept("none", sequence=True) / plain == pytest.approx(sequence, abs=0.2)
    assert kept("selective", sequence=False) / plain == pytest.approx(selective, abs=0.2)
    assert kept("selective", sequence=True) / plain == pytest.approx(both, abs=0.2)
    assert kept("full", sequence=False) / plain == pytest.approx(full, abs=0.2)


# The same paper, figure 1: weights, gradients and Adam's state in mixed precision are 18 bytes a parameter
@pytest.mark.parametrize(
    ("layers", "width", "heads", "pipeline", "gib"),
    [
        (48, 6144, 64, 1, 45.5625),
        (96, 12288, 96, 8, 45.5625),
        (105, 20480, 128, 35, 31.640625),
        (128, 25600, 160, 64, 32.958984375),
    ],
)
def test_parameters_of_a_rank_are_those_of_the_published_figure(
    layers: int, width: int, heads: int, pipeline: int, gib: float
) -> None:
    model = replace(DECODERS["gpt3-175b"], width=width, heads=heads, key_value_heads=heads, hidden=4 * width)
    block = rank_layers(model, PACE, parallel=TensorParallel(degree=8))[1]
    # products' weights alone: the figure leaves biases and norms out
    weights = sum(tensor.count for tensor in block.parameters if tensor.count >= width**2 // 8)
    assert 18 * weights * layers // pipeline / 2**30 == gib


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
def test_what_is_kept_and_what_is_done_anew_are_all_activations(checkpointing: str) -> None:
    for parallel in STYLES:
        whole = made(TINY, parallel)[1]
        some = made(TINY, parallel, checkpointing=checkpointing)[1]
        assert some.kept_nbytes + some.recomputed_nbytes == whole.kept_nbytes


@pytest.mark.parametrize("name", STACKS)
def test_only_stacks_that_stop_early_leave_a_layer_s_last_product_out_of_recomputation(name: str) -> None:
    computing = replace(PACE, stack=STACKS[name])
    layer = rank_layers(TINY, computing, numerics=Numerics(checkpointing="full"))[1]
    costs = PassCosts(computing, TensorParallel(), TINY.sequence, TINY.width)
    down = costs.product(Cut(TINY, TensorParallel()).feed_forward[1]) + costs.residual.forward
    left_out = down if STACKS[name].stops_early else 0.0
    assert seconds(layer.recomputed) == pytest.approx(seconds(layer.forward) - left_out)


# Narayanan et al., arXiv:2104.04473, equation 3: 96 b s l h^2 (1 + s / 6h + V / 16lh) with full checkpointing
def test_flops_are_those_of_the_published_formula() -> None:
    model = decoder("gpt3-175b")
    width, tokens, layers, entries = model.width, model.sequence, model.layers, model.vocabulary
    layer = 1 + tokens / (6 * width)
    hardware = 96 * tokens * layers * width**2 * (layer + entries / (16 * layers * width))
    assert model.training_flops() + model.recomputed_flops("full") == pytest.approx(hardware)
    plain = 72 * tokens * layers * width**2 * (layer + entries / (12 * layers * width))
    assert model.training_flops() == pytest.approx(plain)
    step = Utilization(
        decoder=model, samples=64, step_s=13.75, gpus=64, peak=312e12, checkpointing="selective"
    )
    assert step.tokens_per_s == 2048 * step.samples_per_s == pytest.approx(64 * 2048 / 13.75)
    # arXiv:2205.05198, table 5: 51.4 %
    assert step.mfu == pytest.approx(0.514, abs=1e-3)
    assert step.hfu > step.mfu
    assert step.gpu_hours(step.tokens_per_s * 3600) == pytest.approx(64)
