"""A mixture of experts on expert-parallel ranks: parameters, work and exchanges of each rank."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.compute.prices import Prices, StackOnGpu
from ringside.sim.compute.stacks import STACKS
from ringside.sim.training.layers import Exchange, Kernels, Pass, RankLayer
from ringside.sim.training.tensor.costs import Numerics
from ringside.sim.training.tensor.cut import TensorParallel
from ringside.sim.training.tensor.dispatch import DISPATCHERS, ExpertParallel
from ringside.sim.training.tensor.layers import rank_layers, replicated_parameters
from ringside.sim.workload.decoder import MODULES, USUAL_MODULES, Decoder, decoder
from ringside.sim.workload.decoder_parts import Experts, Latent
from ringside.sim.workload.devices import Roofline

PACE = StackOnGpu(Prices(roofline=Roofline(1e12, 1e12, 2)))
MIXTURE = Decoder(
    name="mixture", layers=3, width=64, heads=8, key_value_heads=4, hidden=128, vocabulary=1024, sequence=32,
    longest=32, gated=True, norm="rms", biases=False, experts=Experts(count=8, active=2, hidden=128),
)  # fmt: skip
LATENT = replace(
    MIXTURE, key_value_heads=8,
    experts=Experts(count=8, active=3, hidden=32, shared_hidden=64, dense_layers=1),
    latent=Latent(query_rank=24, key_value_rank=16, plain=16, rotary=8, value=12),
)  # fmt: skip
PLAIN = replace(
    MIXTURE, layers=5, gated=False, head=16, qk_norm=True, biases=True, norm="layer",
    experts=Experts(count=8, active=2, hidden=64, shared_hidden=32, every=2),
)  # fmt: skip
"""Experts that are not gated, in every second layer, and heads wider than their part of the width."""
FURTHER = replace(LATENT, predicted=2)
MODELS = st.sampled_from([MIXTURE, LATENT, PLAIN, FURTHER])


def made(
    model: Decoder, experts: ExpertParallel, tensor: int = 1, pace: StackOnGpu = PACE, **how: Any
) -> tuple[RankLayer, ...]:
    parallel = TensorParallel(degree=tensor, sequence=tensor > 1)
    return rank_layers(model, pace, parallel=parallel, experts=experts, numerics=Numerics(**how))


def sent(one: Pass) -> list[tuple[tuple[str, ...], str, int]]:
    return [
        (part.dimensions, part.collective.kind, part.collective.nbytes)
        for part in one
        if isinstance(part, Exchange)
    ]


def seconds(one: Pass) -> float:
    return sum(part.seconds for part in one if isinstance(part, Kernels))


@given(MODELS, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([None, 1, 2, 8]))
def test_ranks_together_have_the_model_and_copies_of_what_is_not_cut(
    model: Decoder, degree: int, tensor: int, sharing: int | None
) -> None:
    layers = made(model, ExpertParallel(degree=degree, tensor=sharing), tensor)
    dense = sum(one.count for layer in layers for one in layer.parameters)
    copied = sum(one.count for one in replicated_parameters(layers))
    experts = sum(one.count for layer in layers for one in layer.experts)
    own = tensor * (dense - copied) + degree * (sharing or tensor) * experts
    assert own + copied == model.num_parameters
    has_experts = [model.has_experts(min(number, model.layers - 1)) for number in range(len(layers) - 2)]
    assert [bool(layer.experts) for layer in layers[1:-1]] == has_experts
    assert len(layers) == model.layers + model.predicted + 2
    if model is PLAIN:
        assert [bool(layer.experts) for layer in layers[1:-1]] == [True, False, True, False, True]


@given(MODELS, st.sampled_from([1, 2, 8]), st.sampled_from([1, 2]))
def test_products_are_shared_out_and_none_is_added(model: Decoder, degree: int, tensor: int) -> None:
    arithmetic = StackOnGpu(Prices(roofline=Roofline(1.0, 1e300, 2)))

    def flops(way: str) -> float:
        experts = ExpertParallel(degree=degree, capacity=1.0)
        layers = made(model, experts, tensor, arithmetic, attention="full")
        return sum(seconds(getattr(layer, way)) for layer in layers)

    whole, latent = model.flops(), model.latent
    # what is not cut every tensor-parallel rank does: latent attention's narrow vectors
    narrow = sum(inputs * outputs for inputs, outputs in latent.inputs(model.width)) if latent else 0
    again = 2 * model.sequence * (model.layers + model.predicted) * narrow * (tensor - 1)
    assert tensor * flops("forward") == pytest.approx(whole + again)
    assert flops("backward") == pytest.approx(2 * flops("forward"))
    split = flops("input_gradient") + flops("weight_gradient")
    assert split == pytest.approx(flops("backward"))


def test_a_layer_says_counts_and_sends_tokens_there_and_back_each_way() -> None:
    layer = made(MIXTURE, ExpertParallel(degree=4))[1]
    tokens, probabilities = 32 * 2 * 64 * 2, 32 * 2 * 4
    there = [(("expert",), "all_to_all", nbytes) for nbytes in (tokens, probabilities)]
    counts = (("tensor", "expert"), "all_gather", 4 * 8 * 8)
    assert sent(layer.forward) == [counts, *there, there[0]]
    assert sent(layer.backward) == sent(layer.input_gradient) == [there[0], *reversed(there)]
    assert sent(layer.weight_gradient) == []


def test_full_checkpointing_sends_again() -> None:
    layer = made(MIXTURE, ExpertParallel(degree=4), checkpointing="full")[1]
    assert sent(layer.recomputed) == sent(layer.forward)


MODULE_SETS = st.lists(st.sampled_from(MODULES), min_size=1, unique=True).map(tuple)


@given(MODELS, MODULE_SETS)
def test_selective_checkpointing_recomputes_the_modules_that_it_is_given(
    model: Decoder, modules: tuple[str, ...]
) -> None:
    arithmetic = StackOnGpu(Prices(roofline=Roofline(1.0, 1e300, 2)), STACKS["te"])

    def again(**how: Any) -> tuple[RankLayer, ...]:
        one = ExpertParallel(capacity=1.0)
        return made(model, one, 1, arithmetic, attention="full", checkpointing="selective", **how)

    found = sum(seconds(layer.recomputed) for layer in again(recompute=modules))
    # the router is recomputed with its experts, and counted among their products
    assert found == pytest.approx(model.recomputed_flops("selective", modules=modules))
    assert again() == again(recompute=USUAL_MODULES)
    whole = made(model, ExpertParallel(capacity=1.0), 1, arithmetic, attention="full")
    kept = [layer.kept_nbytes for layer in whole]
    assert all(layer.kept_nbytes <= most for layer, most in zip(again(recompute=modules), kept, strict=True))


@given(MODELS)
def test_modules_that_hold_no_products_take_time_all_the_same(model: Decoder) -> None:
    for module in ("layernorm", "moe_act"):
        layers = made(model, ExpertParallel(), checkpointing="selective", recompute=(module,))[1:-1]
        has = [module == "layernorm" or bool(layer.experts) for layer in layers]
        assert [seconds(layer.recomputed) > 0 for layer in layers] == has


def test_tensor_parallel_ranks_send_their_own_tokens_and_gather_what_each_got() -> None:
    layer = made(MIXTURE, ExpertParallel(degree=4), tensor=2)[1]
    own, all_ = 16 * 2 * 64 * 2, 32 * 2 * 64 * 2
    inside = [one for one in sent(layer.forward) if one[2] in (own, all_)][2:]
    assert inside == [
        (("expert",), "all_to_all", own),
        (("tensor",), "all_gather", all_),
        (("tensor",), "reduce_scatter", all_),
        (("expert",), "all_to_all", own),
    ]


def test_ranks_that_share_no_expert_send_to_each_other_and_gather_nothing() -> None:
    """Megatron-LM with --expert-tensor-parallel-size 1: expert parallelism over tensor-parallel ranks."""
    layer = made(MIXTURE, ExpertParallel(degree=4, tensor=1), tensor=2)[1]
    own = 16 * 2 * 64 * 2
    counts = (("expert_tensor", "expert"), "all_gather", 4 * 8 * 8)
    there = [(("expert",), "all_to_all", nbytes) for nbytes in (own, 16 * 2 * 4)]
    first = sent(layer.forward).index(counts)
    assert sent(layer.forward)[first:] == [counts, *there, there[0]]
    whole = made(MIXTURE, ExpertParallel(degree=4), tensor=2)[1]
    assert sum(one.count for one in layer.experts) == 2 * sum(one.count for one in whole.experts)


def test_the_all_gather_dispatcher_gathers_all_and_scatters_sums() -> None:
    """As MoEAllGatherTokenDispatcher: the routes, the probabilities, the tokens; sums go back."""
    experts = ExpertParallel(degree=4, dispatcher="allgather")
    layer, other = made(MIXTURE, experts)[1], made(MIXTURE, ExpertParallel(degree=4))[1]
    along, routes = ("tensor", "expert"), 4 * 32 * 8
    tokens = 4 * 32 * 64 * 2
    gathers = [(along, "all_gather", nbytes) for nbytes in (routes, 4 * routes, tokens)]
    assert sent(layer.forward) == [*gathers, (along, "reduce_scatter", tokens)]
    back = [(along, "reduce_scatter", nbytes) for nbytes in (tokens, 4 * routes)]
    assert sent(layer.backward) == sent(layer.input_gradient) == [(along, "all_gather", tokens), *back]
    assert (layer.parameters, layer.experts) == (other.parameters, other.experts)


def test_deepep_sends_a_token_once_and_adds_up_what_returns() -> None:
    """As MoEFlexTokenDispatcher with DeepEP: no counts, no probabilities, backward the other way round."""
    experts = ExpertParallel(degree=4, dispatcher="deepep")
    layer, other = made(MIXTURE, experts)[1], made(MIXTURE, ExpertParallel(degree=4))[1]

    def phases(parts: Pass) -> list[tuple[str, str, int]]:
        moved = (one.collective.tokens for one in parts if isinstance(one, Exchange))
        return [(one.name, one.by, one.exchange.tokens) for one in moved if one]

    there, back = ("dispatch", "deepep", 32), ("combine", "deepep", 32)
    assert phases(layer.forward) == [there, back]
    assert phases(layer.backward) == phases(layer.input_gradient) == [there, back]
    assert len(sent(layer.forward)) == len(sent(layer.backward)) == 2
    assert seconds(layer.forward) < seconds(other.forward)
    with pytest.raises(ValueError, match="2 ranks that share an expert; write `etp` 1"):
        made(MIXTURE, experts, tensor=2)


@given(MODELS, st.sampled_from([1, 2]))
def test_words_that_change_nothing_change_nothing(model: Decoder, tensor: int) -> None:
    plain = made(model, ExpertParallel(degree=4), tensor)
    assert made(model, ExpertParallel(degree=4, tensor=tensor), tensor) == plain
    alone, *others = (made(model, ExpertParallel(dispatcher=one)) for one in DISPATCHERS)
    for one, *same in zip(alone, *others, strict=True):
        for other in same:
            assert one.kept_nbytes == other.kept_nbytes
            for way in ("forward", "backward", "input_gradient"):
                assert seconds(getattr(one, way)) == pytest.approx(seconds(getattr(other, way)))
                assert sent(getattr(one, way)) == sent(getattr(other, way)) == []


def test_one_rank_sends_nothing_and_waits_for_no_counts() -> None:
    layers = made(LATENT, ExpertParallel())
    assert not any(sent(one) for layer in layers for one in (layer.forward, layer.backward))


@given(MODELS, st.floats(1, 4), st.floats(1, 4))
def test_the_busiest_rank_sends_computes_and_keeps_no_less_where_it_gets_more(
    model: Decoder, one: float, other: float
) -> None:
    less, more = (made(model, ExpertParallel(degree=4, imbalance=by))[2] for by in sorted((one, other)))
    assert less.kept_nbytes <= more.kept_nbytes
    for way in ("forward", "backward"):
        assert seconds(getattr(less, way)) <= seconds(getattr(more, way))
        assert sent(getattr(less, way)) <= sent(getattr(more, way))


def test_with_a_capacity_nobody_is_told_counts() -> None:
    told = made(MIXTURE, ExpertParallel(degree=4))[1]
    padded = made(MIXTURE, ExpertParallel(degree=4, capacity=1.25))[1]
    assert [one[2] for one in sent(padded.forward)] == [8 * 10 * 64 * 2, 8 * 10 * 4, 8 * 10 * 64 * 2]
    assert len(sent(told.forward)) == 1 + len(sent(padded.forward))


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        # parameters of Qwen/Qwen3-0.6B, Qwen3-8B and Qwen3-30B-A3B, which norm queries and keys
        ({"layers": 28, "width": 1024, "heads": 16, "head": 128, "hidden": 3072, "tied": True}, 596_049_920),
        ({"layers": 36, "width": 4096, "heads": 32, "hidden": 12288}, 8_190_735_360),
        (
            {"layers": 48, "width": 2048, "heads": 32, "head": 128, "hidden": 6144, "key_value_heads": 4,
             "experts": Experts(count=128, active=8, hidden=768)},
            30_532_122_624,
        ),
    ],
)  # fmt: skip
def test_published_models_with_heads_of_another_width_and_norms_have_their_parameters(
    shape: dict[str, Any], count: int
) -> None:
    words = {"key_value_heads": 8, "vocabulary": 151936, "longest": 40960, "qk_norm": True, **shape}
    model = replace(MIXTURE, **{"experts": None, **words})
    assert model.num_parameters == count
    layers = made(model, ExpertParallel())
    assert sum(one.count for layer in layers for one in (*layer.parameters, *layer.experts)) == count


@pytest.mark.parametrize(("dense", "every", "which"), [(0, 2, {0, 2, 4}), (1, 2, {1, 3}), (2, 3, {2})])
def test_every_nth_layer_behind_the_dense_ones_has_experts(dense: int, every: int, which: set[int]) -> None:
    model = replace(PLAIN, experts=Experts(count=8, active=2, hidden=64, dense_layers=dense, every=every))
    assert {layer for layer in range(5) if model.has_experts(layer)} == which


def test_a_further_prediction_of_deepseek_v3_has_its_published_parameters() -> None:
    """11.5 billion beside the shared embedding and head (deepseek-ai/DeepSeek-V3, README_WEIGHTS.md)."""
    model = decoder("deepseek-v3")
    assert replace(model, predicted=1).num_parameters - model.num_parameters == pytest.approx(
        11.5e9, rel=1e-2
    )


def test_a_further_prediction_joins_two_vectors_and_does_the_head_again() -> None:
    one, two = (made(replace(MIXTURE, predicted=count), ExpertParallel(), tensor=2) for count in (0, 1))
    (further,) = (layer for layer in two if layer not in one and layer.name != "head")
    found = {tensor.name: tensor.count for tensor in further.parameters}
    assert found["joined.weight"] == 128 * 32
    assert {"embedding_norm.weight", "hidden_norm.weight", "final_norm.weight"} < found.keys()
    assert sent(two[-1].forward) == 2 * sent(one[-1].forward)
    assert sent(two[-1].backward) == 2 * sent(one[-1].backward)
    assert two[-1].parameters == one[-1].parameters
    tokens = 32 * 64 * 2
    joined = [(("tensor",), "all_gather", 2 * tokens), (("tensor",), "all_gather", tokens)]
    assert sent(further.forward)[1:] == [*joined, *sent(one[-2].forward)]


def test_latent_attention_of_deepseek_v3_is_the_published_one() -> None:
    first, moe = (made(decoder("deepseek-v3"), ExpertParallel(degree=64))[place] for place in (1, 4))
    found = {tensor.name: tensor.count for tensor in first.parameters}
    assert found["query_up.weight"] == 1536 * 128 * 192
    assert found["key_value_down.weight"] == 7168 * 576
    assert found["output.weight"] == 16384 * 7168
    assert sum(tensor.count for tensor in moe.experts) == 256 // 64 * 3 * 7168 * 2048


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"degree": 3},
            "mixture: 8 experts do not divide by 3 expert-parallel ranks; write one of 1, 2, 4, 8",
        ),
        ({"degree": 0}, "among 0 ranks; write 1 or more"),
        ({"degree": 2, "imbalance": 3.0}, "the busiest of 2 .* has 3 times the mean; write 1 to 2"),
        ({"degree": 2, "imbalance": 0.5}, "write 1 to 2"),
        ({"degree": 2, "imbalance": float("nan")}, "write 1 to 2"),
        ({"capacity": 0.0}, "a capacity of 0 times the even part; write for example 1.25"),
        ({"capacity": float("nan")}, "write for example 1.25"),
        ({"degree": 2, "imbalance": 1.5, "capacity": 1.0}, "remove one of them"),
        ({"tensor": 3}, "128 columns of an expert do not divide by 3 .* ranks of the experts; write a div"),
        ({"dispatcher": "flex"}, "unknown dispatcher 'flex'; write one of alltoall, allgather, deepep"),
        ({"dispatcher": "allgather", "capacity": 1.0}, "drops no tokens; leave the capacity out"),
        ({"degree": 2, "dispatcher": "deepep", "capacity": 1.0}, "the deepep dispatcher drops no tokens"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_fit(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(MIXTURE, ExpertParallel(**words))
    with pytest.raises(ValueError, match="9 of 8 experts for a token; write 1 to 8"):
        Experts(count=8, active=9, hidden=1)
