"""What ranks hold and keep, counted by hand for three layouts, and laws of a rank's memory over time."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringside
from ringside.sim.program import Compute, Operation
from ringside.sim.training.memory.peak import use
from ringside.sim.training.step import ParallelStep, StageTime
from ringside.sim.workload.decoder import Decoder
from ringside.validation.published.training.aleph_alpha.kept import LlamaLayer
from ringside.validation.questions.models import find_model
from ringside.validation.questions.step_time import StepTime, StepUnderLayout

MIB = 2**20


def stages(model: str | Decoder, **options: Any) -> tuple[StageTime, ...]:
    """Return the stages of a step of Megatron's strategies on one machine of H100."""
    step = ringside.train(model, "dgx-h100:1", **{"stack": "te", "precision": "bf16", **options})
    assert isinstance(step, ParallelStep)
    return step.stages


def test_a_gpt_on_one_rank_is_counted_by_hand() -> None:
    layers, width, heads, tokens, vocabulary = 2, 256, 4, 128, 512
    (alone,) = stages(
        f"gpt2:{tokens},layers={layers},width={width},heads={heads},vocabulary={vocabulary},"
        f"positions={tokens}",
        strategy="megatron_ddp", ranks=1, batch=1, accumulation_fusion=False, dropout=True,
    )  # fmt: skip
    layer = 12 * width**2 + 13 * width
    parameters = vocabulary * width + tokens * width + layers * layer + 2 * width
    pools = alone.peak.by_pool
    assert pools["parameters"] == 2 * parameters
    assert pools["gradients"] == 4 * parameters
    # the optimizer's part is padded to multiples of 128 elements
    assert pools["float32 copies"] == pytest.approx(4 * parameters, rel=1e-3)
    assert pools["optimizer"] == pytest.approx(8 * parameters, rel=1e-3)
    assert pools["workspaces"] == 3 * 32 * MIB
    between = tokens * width
    kept = (
        2 * (2 * between + 2 * between + 8 * tokens)  # two norms: input, output, statistics
        + 2 * 3 * between + 4 * tokens * heads + 2 * between  # attention: inputs, log-sum-exp, output
        + 2 * (4 + 4) * between  # first product's output, activated
        + 2 * between  # two masks
    )  # fmt: skip
    logits = tokens * vocabulary
    head = 4 * between + max(6 * logits, 2 * logits + 2 * vocabulary * width + 2 * between)
    assert pools["activations"] == between + layers * kept + head


def test_a_pipeline_with_tensor_and_sequence_parallelism_is_counted_by_hand() -> None:
    width, heads, groups, hidden, tokens, vocabulary = 512, 8, 4, 1536, 256, 1024
    model = (
        f"llama3-8b:{tokens},layers=4,width={width},heads={heads},key_value_heads={groups},"
        f"hidden={hidden},vocabulary={vocabulary}"
    )
    first, last = stages(
        model, strategy="distributed_optimizer", ranks=8, tp=2, sequence_parallel=True, pp=2, batch=4
    )
    group = width // heads * groups
    layer = (2 * width**2 + 2 * width * group + 3 * width * hidden) // 2 + 2 * width
    dense = 2 * layer
    embedding = vocabulary * width // 2
    for stage, parameters in ((first, dense + embedding), (last, dense + embedding + width)):
        pools = stage.peak.by_pool
        assert pools["parameters"] == 2 * parameters
        assert pools["gradients"] == 4 * parameters
        assert pools["optimizer"] == pytest.approx(8 * parameters / 2, rel=1e-3)
        assert pools["messages"] == 3 * 2 * tokens * width // 2
        shapes = ((width + 2 * group) // 2 * width, width // 2 * width, hidden * width, hidden // 2 * width)
        assert pools["dummy gradients"] == 2 * sum(shapes)
    shard = tokens * width // 2
    kept = (
        2 * (2 * shard + 2 * shard + 4 * tokens // 2)
        + 2 * tokens * (width + 2 * group) // 2 + 4 * tokens * heads // 2 + 2 * tokens * width // 2
        + 2 * 3 * tokens * hidden // 2
    )  # fmt: skip
    gradients = 2 * 3 * tokens * hidden // 2 + 2 * shard
    # two micro-batches are in flight on the first of two stages
    assert first.peak.by_pool["activations"] == 2 * 2 * kept + gradients


def test_experts_are_counted_by_hand() -> None:
    width, hidden, experts, tokens, vocabulary = 256, 512, 8, 128, 512
    model = (
        f"mixtral-8x7b:{tokens},layers=1,width={width},heads=4,key_value_heads=4,hidden={hidden},"
        f"vocabulary={vocabulary}"
    )
    options = {"strategy": "distributed_optimizer", "ranks": 8, "batch": 1, "ep": 4}
    (stage,) = stages(model, **options)
    (gathering,) = stages(model, dispatcher="allgather", **options)
    (one_by_one,) = stages(model, sequential_experts=True, **options)
    decoder = find_model(model)
    assert isinstance(decoder, Decoder)
    assert decoder.experts
    own = experts // 4 * 3 * width * decoder.experts.hidden
    dense = 4 * width**2 + 2 * width + width * experts + width + 2 * vocabulary * width
    assert stage.peak.by_pool["gradients"] == 4 * (dense + own)
    # dense states over eight ranks, those of experts over the two that have the same
    assert stage.peak.by_pool["optimizer"] == pytest.approx(8 * (dense / 8 + own / 2), rel=2e-3)
    assert stage.peak.by_pool["workspaces"] == (2 + 1 + 4) * 32 * MIB
    assert one_by_one.peak.by_pool["workspaces"] == (2 + 1) * 32 * MIB
    assert gathering.peak.by_pool["gathered tokens"] == 2 * tokens * 4 * width


def test_written_scores_are_counted_by_hand() -> None:
    tokens, heads, layers, scores = 256, 8, 2, 256 * 256 * 4
    options: dict[str, Any] = {
        "strategy": "megatron_ddp", "ranks": 2, "tp": 2, "batch": 1, "stack": "megatron",
    }  # fmt: skip

    def pools(**more: Any) -> Mapping[str, int]:
        (stage,) = stages(f"gpt2:{tokens},layers={layers},width=256,heads={heads}", **options | more)
        return stage.peak.by_pool

    # softmax's result, a byte of dropout's mask, what is multiplied with the values
    for dropout, fused, wide in ((False, 2, 4 + 2), (True, 2 + 1 + 2, 4 + 1 + 2)):
        narrow, more = (pools(dropout=dropout, attention=one) for one in ("unfused", "unfused-fp32"))
        assert more["activations"] - narrow["activations"] == layers * scores * (wide - fused)
        assert more["buffer of scores"] == narrow["buffer of scores"] == 2 * scores
        one_kernel = pools(dropout=dropout, attention="flash")
        log_sum_exp = 4 * tokens * heads // 2
        difference = narrow["activations"] - one_kernel["activations"]
        assert difference == layers * (scores * fused - log_sum_exp)
        assert "buffer of scores" not in one_kernel
    assert "buffer of scores" not in pools(stack="te", attention="unfused")


def test_a_batch_brings_its_mask_to_the_loss() -> None:
    options: dict[str, Any] = {"strategy": "megatron_ddp", "ranks": 4, "batch": 2, "micro_batch": 2}
    for cut in ({"tp": 2, "sequence_parallel": True}, {"cp": 2}, {"pp": 2}):
        *_, plain = stages("gpt2:512,layers=2", **options, **cut)
        *_, masked = stages("gpt2:512,layers=2", attention_mask=True, **options, **cut)
        assert masked.peak.nbytes - plain.peak.nbytes == 2 * 512**2 // cut.get("cp", 1)


def test_tokens_of_experts_are_kept_once_and_on_their_way_back_three_times() -> None:
    width, tokens = 256, 1024
    found = find_model(
        f"mixtral-8x7b:{tokens},layers=1,width={width},key_value_heads=4,heads=4,vocabulary=128"
    )
    assert isinstance(found, Decoder)
    assert found.experts
    model = replace(found, experts=replace(found.experts, hidden=64))
    options: dict[str, Any] = {"strategy": "distributed_optimizer", "ranks": 8, "batch": 1}
    nbytes = 2 * found.experts.active * tokens * width
    for ep, copies in ((1, 2), (4, 3)):
        (stage,) = stages(model, ep=ep, **options)
        (keeping,) = stages(model, ep=ep, no_permute_fusion=True, **options)
        assert keeping.peak.nbytes - stage.peak.nbytes == nbytes
        (kept,) = (
            sum(terms.values()) for terms in stage_terms(model, ep=ep, **options) if "experts" in terms
        )
        assert stage.peak.by_pool["activations"] == kept + copies * nbytes + 2 * tokens * width


def stage_terms(model: Decoder, **options: Any) -> list[Mapping[str, int]]:
    """Return what the layers of the only stage keep."""
    asked = StepTime(model=model, cluster="dgx-h100:1", precision="bf16", **options).ask()
    assert isinstance(asked, StepUnderLayout)
    (kinds,) = asked.kept
    return [kind["terms"] for kind in kinds]


def test_megatrons_fsdp_shards_all_and_gathers_two_layers_at_a_time() -> None:
    width, vocabulary, layers, ranks = 256, 512, 12, 4
    model = (
        f"llama3-8b:512,layers={layers},width={width},heads=4,key_value_heads=4,hidden=1024,"
        f"vocabulary={vocabulary}"
    )
    options: dict[str, Any] = {"ranks": ranks, "batch": 2}
    (stage,) = stages(model, strategy="megatron_fsdp", **options)
    layer = 4 * width**2 + 3 * width * 1024 + 2 * width
    rest = 2 * vocabulary * width + width
    parameters = layers * layer + rest
    pools = stage.peak.by_pool
    assert pools["parameters"] == 2 * parameters / ranks
    assert pools["float32 copies"] == pools["gradients"] == 4 * parameters / ranks
    assert pools["optimizer"] == 8 * parameters / ranks
    assert pools["gathered parameters"] <= 2 * (rest + 2 * layer)
    torchs = ringside.train(model, "dgx-h100:1", strategy="fsdp", stack="te", precision="bf16", **options)
    own = ringside.train(model, "dgx-h100:1", strategy="megatron_fsdp", clip=False, **options)
    assert isinstance(torchs, ParallelStep)
    assert isinstance(own, ParallelStep)
    assert own.step_s < torchs.step_s  # it copies neither in nor out


@pytest.mark.parametrize("strategy", ["megatron_ddp", "distributed_optimizer"])
def test_muon_keeps_one_state_of_matrices_and_two_of_the_rest(strategy: str) -> None:
    width, vocabulary, layers = 256, 1024, 2
    model = (
        f"llama3-8b:128,layers={layers},width={width},heads=4,key_value_heads=4,hidden=512,"
        f"vocabulary={vocabulary}"
    )
    (stage,) = stages(model, strategy=strategy, ranks=2, batch=1, optimizer="muon")
    matrices = layers * (4 * width**2 + 3 * width * 512)
    others = 2 * vocabulary * width + (2 * layers + 1) * width
    holders = 2 if strategy == "distributed_optimizer" else 1
    assert stage.peak.by_pool["optimizer"] == pytest.approx(4 * (matrices + 2 * others) / holders, rel=1e-3)


def test_muon_is_megatrons() -> None:
    for strategy in ("ddp", "fsdp"):
        with pytest.raises(ValueError, match="muon is not modelled with `strategy`"):
            ringside.train("gpt2", "dgx-h100:1", batch=8, strategy=strategy, optimizer="muon")


@pytest.mark.parametrize(("stack", "norms"), [("aleph", False), ("aleph-rms", True)])
def test_aleph_alphas_stacks_keep_what_its_code_keeps(stack: str, norms: bool) -> None:
    width, heads, hidden, tokens = 512, 4, 1024, 256
    found = find_model(
        f"llama3-8b:{tokens},layers=1,width={width},heads={heads},key_value_heads={heads},hidden={hidden}"
    )
    assert isinstance(found, Decoder)
    (kept,) = (
        terms
        for terms in stage_terms(found, strategy="megatron_ddp", ranks=1, batch=1, stack=stack)
        if "feed-forward" in terms
    )
    layer = LlamaLayer(tokens, 1, width, heads, hidden, 1, False, norms, True)
    statistics = 2 * 4 * tokens
    assert sum(kept.values()) == sum(layer.kept.values()) + statistics


def test_local_layers_route_by_transformer_engine() -> None:
    model = "mixtral-8x7b:128,layers=1,width=256,heads=4,key_value_heads=4,hidden=512,vocabulary=512"
    options = {"strategy": "megatron_ddp", "ranks": 1, "batch": 1, "stack": "megatron"}
    (experts,) = stages(model, **options)
    (dense,) = stages("llama3-8b:128,layers=1,width=256,heads=4,key_value_heads=4", **options)
    assert experts.peak.by_pool["workspaces"] == dense.peak.by_pool["workspaces"] + 32 * MIB


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
def test_terms_of_layers_are_all_that_is_kept(checkpointing: str) -> None:
    """What the layers of a stage keep and backward holds is what the peak has of activations."""
    asked = StepTime(
        model="llama3-8b:512,layers=3", cluster="dgx-h100:1", strategy="megatron_ddp", ranks=1, batch=1,
        checkpointing=checkpointing,
    ).ask()  # fmt: skip
    assert isinstance(asked, StepUnderLayout)
    (stage,) = asked.kept
    kept = sum(len(one["layers"]) * sum(one["terms"].values()) for one in stage)
    held = max(layer.backward_nbytes + layer.recomputed_nbytes for layer in asked.question.job.layers(0))
    assert kept < asked.step.stages[0].peak.by_pool["activations"] <= kept + held


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0.001, 1.0)), min_size=1, max_size=20))
def test_a_curve_ends_where_it_began_and_its_top_is_the_peak(pairs: list[tuple[int, float]]) -> None:
    operations, begins, ends, now = [], [], [], 0.0
    for nbytes, seconds in pairs:
        memory = (("activations", nbytes), ("activations", -nbytes)) if nbytes else ()
        operations.append(Operation(Compute(seconds), None, (), False, "work", "forward", memory=memory))
        begins.append(now)
        now += seconds
        ends.append(now)
    found = use({"parameters": 7}, operations, begins, ends)
    moments = [moment for moment, _ in found.curve]
    assert moments == sorted(set(moments))
    assert found.curve[0][0] == 0.0
    assert found.curve[-1][1] == 7
    assert max(nbytes for _, nbytes in found.curve) == found.peak.nbytes == 7 + max(one for one, _ in pairs)


def test_a_trace_counts_the_memory_of_every_stage() -> None:
    step = ringside.train(
        "llama3-8b:512,layers=4", "dgx-h100:1", strategy="distributed_optimizer", pp=2, batch=4
    )
    assert isinstance(step, ParallelStep)
    events = json.loads(step.timeline.dumps())["traceEvents"]
    for stage in step.stages:
        counted = [
            event["args"]["memory (GiB)"] * 2**30
            for event in events
            if event["ph"] == "C" and event["pid"] == stage.rank
        ]
        assert max(counted) == pytest.approx(stage.peak.nbytes)


def test_words_that_cost_no_memory_change_none() -> None:
    plain = {"strategy": "distributed_optimizer", "ranks": 8, "tp": 2, "batch": 4}
    (stage,) = stages("llama3-8b:512,layers=2", **plain)
    for word in ({"overlap_grad_reduce": True}, {"spread": 0.1}, {"clip": False}):
        (other,) = stages("llama3-8b:512,layers=2", **plain, **word)
        assert replace(other.peak, moment_s=0, operation="") == replace(
            stage.peak, moment_s=0, operation=""
        ), word
