"""Steps of a mixture of experts: placement of experts, sums of gradients, and times."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.collective import ITEMSIZE
from ringside.sim.compute.prices import StackOnGpu, prices_on
from ringside.sim.libraries.experts.exchange import exchange_time
from ringside.sim.libraries.experts.tokens import ExpertTokens
from ringside.sim.program import Call
from ringside.sim.program.check import PROVED, check
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.roles import roles
from ringside.sim.training.advice import peak_nbytes
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.memory.optimizers import find_optimizer
from ringside.sim.training.mesh import DATA, FOLDS, Mesh
from ringside.sim.training.parallel import simulate_parallel
from ringside.sim.training.program import Writing
from ringside.sim.training.step import ParallelStep
from ringside.sim.training.tensor.decoder import decoder_on_rank
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.decoder_parts import Experts
from ringside.sim.workload.devices import device

GPU = device("a100")
MIXTURE = Decoder(
    name="mixture", layers=4, width=256, heads=8, key_value_heads=4, hidden=512, vocabulary=1024,
    sequence=128, longest=128, gated=True, norm="rms", biases=False,
    experts=Experts(count=8, active=2, hidden=512, shared_hidden=512),
)  # fmt: skip


def job(layout: Layout, ranks: int, batch: int = 2, **more: object) -> ParallelJob:
    model = decoder_on_rank(MIXTURE, layout, StackOnGpu(prices_on(GPU, "bf16")), "float32")
    found = ParallelJob(
        model=model, layout=layout, mesh=mesh_of(layout, ranks, 8), batch=batch,
        optimizer=find_optimizer("adam"), costs=Costs(memory_bandwidth=GPU.streaming), precision="bfloat16",
    )  # fmt: skip
    return replace(found, **more)


def simulated(made: ParallelJob) -> ParallelStep:
    ranks = made.mesh.ranks
    return simulate_parallel(made, Libraries("ideal", f"star:{ranks}", {"bandwidth": "50GB/s"}, ranks))


def summed(made: ParallelJob, rank: int = 0) -> Counter[tuple[str, tuple[int, ...]]]:
    found: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for operation in Writing(made).operations(rank):
        action = operation.action
        if isinstance(action, Call) and action.collective.kind in ("all_reduce", "reduce_scatter"):
            found[action.collective.kind, action.group.ranks] += action.collective.nbytes
    return found


# Megatron-LM's groups of 8 ranks with 2 tensor-parallel and 2 expert-parallel ones, order tp-cp-ep-dp-pp
def test_expert_parallel_ranks_are_neighbours_among_the_data_parallel_ones() -> None:
    mesh = Mesh(tensor=2, shard=4, expert=2)
    assert [mesh.together(rank, "expert") for rank in (0, 1, 4, 5)] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert [mesh.together(rank, "expert_data") for rank in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert mesh.together(5, "tensor", "expert") == (4, 5, 6, 7)


@given(*(st.integers(1, 3) for _ in range(5)), st.data())
def test_folds_deal_the_ranks_of_a_stage_out(
    tensor: int, context: int, shard: int, replicate: int, pipeline: int, data: st.DataObject
) -> None:
    stage = tensor * context * shard * replicate
    sharing = data.draw(st.sampled_from([n for n in range(1, stage + 1) if stage % n == 0]))
    groups = stage // sharing
    expert = data.draw(st.sampled_from([n for n in range(1, groups + 1) if groups % n == 0]))
    mesh = Mesh(
        tensor=tensor, context=context, shard=shard, replicate=replicate, pipeline=pipeline, expert=expert,
        expert_tensor=sharing,
    )  # fmt: skip
    rank = data.draw(st.integers(0, mesh.ranks - 1))
    folds = ("expert_tensor", *FOLDS)
    groups_of = [set(mesh.together(rank, name)) for name in folds]
    assert set.intersection(*groups_of) == {rank}
    assert [len(one) for one in groups_of] == [sharing, expert, mesh.expert_data]
    assert groups_of[2] == {
        far for near in mesh.together(rank, "expert_shard") for far in mesh.together(near, "expert_replicate")
    }
    assert set(mesh.together(rank, *folds)) == set(mesh.together(rank, "tensor", *DATA))
    for name in folds:
        assert all(mesh.together(other, name) == mesh.together(rank, name)
                   for other in mesh.together(rank, name))  # fmt: skip
    if sharing == tensor:
        assert mesh.together(rank, "expert_tensor") == mesh.together(rank, "tensor")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize(("schedule", "virtual"), [("1f1b", 1), ("zbv", 2)])
def test_every_strategy_and_pipeline_is_proved(strategy: str, schedule: str, virtual: int) -> None:
    layout = Layout(
        strategy=strategy, tp=2, pp=2, schedule=schedule, virtual=virtual, ep=2,
        sequence_parallel=True, clip=True,
    )  # fmt: skip
    program = Writing(job(layout, 16, 4)).program()
    assert check(program).verdict == PROVED
    assert len(set(roles(program))) == 2


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "distributed_optimizer"])
def test_ranks_that_share_sequences_deal_experts_out_too(strategy: str) -> None:
    made = job(Layout(strategy=strategy, cp=4, ep=2, clip=True), 8)
    assert check(Writing(made).program()).verdict == PROVED
    assert {group for _, group in summed(made)} >= {tuple(range(8)), (0, 2, 4, 6)}
    apart = job(Layout(strategy=strategy, ep=2), 8)
    assert made.own_nbytes(made.model.layers) == apart.own_nbytes(apart.model.layers)
    tokens, others = (_sent_to_experts(one) for one in (made, apart))
    assert tokens == others / 4


def _sent_to_experts(made: ParallelJob) -> int:
    return sum(
        action.collective.nbytes
        for operation in Writing(made).operations(0)
        if isinstance(action := operation.action, Call)
        and action.collective.kind == "all_to_all"
        and action.collective.nbytes > 1024
    )


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_stage_without_experts_is_shared_as_any_other(strategy: str) -> None:
    assert MIXTURE.experts
    model = replace(MIXTURE, experts=replace(MIXTURE.experts, dense_layers=2))
    layout = Layout(strategy=strategy, pp=2, schedule="zbv", virtual=2, ep=2)
    on_rank = decoder_on_rank(model, layout, StackOnGpu(prices_on(GPU, "bf16")), "float32")
    made = job(layout, 8, 4, model=on_rank)
    assert check(Writing(made).program()).verdict == PROVED
    first, last = (summed(made, rank) for rank in (0, 4))
    assert {kind[1] for kind in first} == {(0, 1, 2, 3), (0, 2)}
    assert {kind[1] for kind in last} == {(4, 5, 6, 7), (4, 6)}
    halves = replace(layout, schedule="1f1b", virtual=1)
    first = summed(job(halves, 8, 4, model=on_rank))
    assert {kind[1] for kind in first} == {(0, 1, 2, 3)}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "hsdp"])
def test_without_expert_parallelism_experts_are_as_all_else(strategy: str) -> None:
    made = job(Layout(strategy=strategy, shard=2 if strategy == "hsdp" else None), 8)
    nbytes = sum(layer.nbytes for layer in made.model.layers)
    assert made.own_nbytes(made.model.layers) == pytest.approx(nbytes / made.mesh.shard, abs=2)


def test_zero_3_holds_and_gathers_each_expert_once() -> None:
    made = job(Layout(strategy="zero3"), 8)
    (stage,) = simulated(made).stages
    small = sum(one.count for layer in made.model.layers for one in layer.parameters if one.count <= 100_000)
    count = sum(layer.nbytes for layer in made.model.layers) // 4
    assert stage.peak.by_pool["optimizer"] <= 8 * (count + 8) / 8
    gathered = sum(
        one.action.collective.nbytes
        for one in Writing(made).operations(0)
        if isinstance(one.action, Call) and one.action.collective.kind == "all_gather"
    )
    # twice a micro-batch what is not small, in bfloat16, and once small parts
    assert gathered <= 2 * made.micro_batches * 2 * (count - small) + 2 * count


@pytest.mark.parametrize("expert", [1, 2, 4, 8])
def test_gradients_of_experts_are_summed_among_those_who_have_them(expert: int) -> None:
    made = job(Layout(ep=expert, no_sync=True), 8)
    found = summed(made)
    layers = made.model.layers
    experts = sum(layer.expert_nbytes for layer in layers)
    dense = sum(layer.nbytes for layer in layers) - experts
    everybody, alike = made.mesh.together(0, *DATA), made.mesh.together(0, "expert_data")
    whole = MIXTURE.layers * 8 * 3 * 256 * 512 * ITEMSIZE["float32"]
    assert experts == whole // expert
    if expert == 1:
        assert found == {("all_reduce", everybody): dense + experts}
    elif expert == 8:
        assert found == {("all_reduce", everybody): dense}
    else:
        assert found == {("all_reduce", everybody): dense, ("all_reduce", alike): experts}


def test_fsdp_deals_experts_out_among_those_who_have_the_same() -> None:
    made = job(Layout(strategy="fsdp", ep=4, no_sync=True), 8)
    found = summed(made)
    experts = sum(layer.expert_nbytes for layer in made.model.layers)
    assert found["reduce_scatter", (0, 4)] == experts
    assert set(found) == {("reduce_scatter", tuple(range(8))), ("reduce_scatter", (0, 4))}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_rank_holds_its_own_experts(strategy: str) -> None:
    dealt, whole = (job(Layout(strategy=strategy, ep=expert), 8) for expert in (8, 1))
    pools = [simulated(made).stages[0].peak.by_pool for made in (dealt, whole)]
    states = {name: [pool[name] for pool in pools] for name in ("parameters", "optimizer")}
    experts = sum(layer.expert_nbytes for layer in whole.model.layers)
    if strategy == "ddp":
        assert states["parameters"][1] - states["parameters"][0] == experts * 7 // 8
        assert states["optimizer"][1] - states["optimizer"][0] == 2 * experts * 7 // 8
    else:
        # dealt out by parameters or by experts, a rank has as much
        assert states["parameters"][0] == states["parameters"][1]
    assert peak_nbytes(dealt) < peak_nbytes(whole)


def test_a_step_says_where_its_time_went_and_more_imbalance_takes_longer() -> None:
    even, uneven = (simulated(job(Layout(ep=4, ep_imbalance=by), 8)) for by in (1.0, 2.0))
    for step in (even, uneven):
        (stage,) = step.stages
        parts = stage.busy_s + stage.exposed_s + stage.bubble_s
        assert parts == pytest.approx(step.step_s)
    assert {"expert", "replicate"} <= set(even.exposed_by_s)
    assert uneven.step_s > even.step_s
    assert uneven.exposed_by_s["expert"] > even.exposed_by_s["expert"]
    told, padded = (
        simulated(job(Layout(ep=4, capacity_factor=capacity), 8)).exposed_by_s for capacity in (None, 1.0)
    )
    assert padded["expert"] <= told["expert"]


def test_deepep_exchanges_tokens_in_the_time_of_its_kernels() -> None:
    """Each layer dispatches and combines in both passes of both micro-batches, and nothing hides it."""
    libraries = Libraries("nccl", "dgx-h100:1", {}, 8)
    step = simulate_parallel(job(Layout(ep=8, dispatcher="deepep"), 8), libraries)
    tokens = ExpertTokens(tokens=128, hidden=256, topk=2, experts=8, dispatch_dtype="bf16")
    once = exchange_time(libraries.whole, tokens, "deepep")
    assert step.exposed_by_s["expert"] == pytest.approx(2 * 2 * 4 * once.total.time_s)
    assert set(step.exposed_by_s) & {"tensor expert", "expert"} == {"expert"}


def test_gradients_of_views_have_no_second_place() -> None:
    layout, views = Layout(ep=8), DataParallel(gradient_as_bucket_view=True)
    with_buckets, without = (
        simulated(made).stages[0].peak.by_pool for made in (job(layout, 8), job(layout, 8, ddp=views))
    )
    alone = sum(layer.expert_nbytes for layer in job(layout, 8).model.layers)
    assert with_buckets["buckets"] == with_buckets["gradients"] - alone
    assert "buckets" not in without


@pytest.mark.parametrize(
    ("words", "ranks", "message"),
    [
        ({"ep": 3}, 8, "`ep` 3 does not divide the 8 data-parallel ranks; write one of `ep` 1, 2, 4, 8"),
        ({"ep": 0}, 8, "`ep` 0; write 1 or more"),
        (
            {"ep": 2, "strategy": "hsdp"},
            8,
            "`ep` 2 is not modelled with `strategy` hsdp; write `strategy` ddp",
        ),
        ({"etp": 3}, 8, "`etp` 3 does not divide the 8 ranks of a stage; write one of `etp` 1, 2, 4, 8"),
        ({"etp": 0}, 8, "`etp` 0; write 1 or more"),
        ({"etp": 1, "strategy": "zero1"}, 8, "`etp` 1 is not modelled with `strategy` zero1; write"),
        (
            {"ep": 8, "etp": 2},
            8,
            "`ep` 8 does not divide the 4 groups of `etp` 2 .*; write one of `ep`",
        ),
        ({"ep": 6}, 24, "straddle machines of 8 unevenly; write one of `ep` 1, 2, 4, 8, 24"),
    ],
)
def test_a_layout_that_cannot_be_says_what_to_write(words: dict[str, int], ranks: int, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        mesh_of(Layout(**words), ranks, 8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 expert-parallel times 1 ranks that share an expert"):
        Mesh(shard=8, expert=3)


def test_words_of_experts_are_refused_where_there_are_none() -> None:
    dense = replace(MIXTURE, name="dense", experts=None)
    for words, option in (
        ({"ep": 2}, "`ep`"),
        ({"ep_imbalance": 1.5}, "`ep_imbalance`"),
        ({"etp": 1}, "`etp`"),
        ({"dispatcher": "allgather"}, "`dispatcher`"),
        ({"capacity_factor": 1.0}, "`capacity_factor`"),
    ):  # fmt: skip
        with pytest.raises(
            LayoutError, match=f"{option} needs a mixture of experts, and dense is none; leave"
        ):
            decoder_on_rank(dense, Layout(**words), StackOnGpu(prices_on(GPU, "bf16")), "float32")  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match=r"`tp` 2 has each rank send its own .* add `sequence_parallel`"):
        decoder_on_rank(MIXTURE, Layout(tp=2), StackOnGpu(prices_on(GPU, "bf16")), "float32")


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ({"ep": 2}, 8), ({"ep": 8}, 8), ({"ep": 4, "cp": 2}, 16), ({"ep": 1}, 8),
        ({"ep": 2, "tp": 2, "sequence_parallel": True, "pp": 2}, 16),
        ({"ep": 4, "etp": 1, "tp": 2, "sequence_parallel": True}, 8), ({"etp": 1, "tp": 2,
         "sequence_parallel": True}, 8), ({"ep": 2, "etp": 2, "dispatcher": "allgather"}, 8),
        ({"ep": 2, "pp": 2, "virtual": 2, "schedule": "interleaved1f1b", "clip": True}, 8),
    ],
)  # fmt: skip
def test_the_distributed_optimizer_deals_experts_out_among_those_that_have_them(
    words: dict[str, Any], ranks: int
) -> None:
    """Megatron-LM's groups: dense gradients over all data-parallel ranks, experts' over those with the same.

    A rank holds 2 bytes of each of its parameters, 4 of its gradient and its part of 12 of optimizer.
    """
    made = job(Layout(strategy="distributed_optimizer", **words), ranks, 4)
    assert check(Writing(made).program()).verdict == PROVED
    pieces, rank = made.mesh.degree(*DATA), 0
    step = Writing(made).step(rank)
    layers = [layer for stage in step.stages.values() for layer in stage.layers]
    experts = sum(layer.expert_nbytes for layer in layers) // 4
    dense = sum(layer.nbytes for layer in layers) // 4 - experts
    if not made.mesh.separates_experts:
        dense, experts = dense + experts, 0
    own = {"parameters": 2 * (dense + experts), "gradients": 4 * (dense + experts)}
    for pool, each in (("float32 copies", 4), ("optimizer", 8)):
        own[pool] = each * dense // pieces + each * experts // made.mesh.expert_data
    taken: Counter[str] = Counter()
    for operation in step.rank.operations:
        for pool, nbytes in operation.memory:
            taken[pool] += max(nbytes, 0)
    padding = 12 * 128 * pieces * len(step.stages) * 2
    for pool, nbytes in own.items():
        assert nbytes <= taken[pool] <= nbytes + padding, pool
    scattered = {group: nbytes for (kind, group), nbytes in summed(made).items() if kind == "reduce_scatter"}
    parts = [(made.mesh.together(rank, *DATA), dense)]
    if made.mesh.expert_data > 1 and experts:
        parts.append((made.mesh.together(rank, "expert_data"), experts))
    for group, elements in parts:
        assert 4 * elements <= scattered.pop(group) <= 4 * elements + padding
    exchanges = (("tensor",), ("expert_tensor",), ("expert_tensor", "expert"))
    assert set(scattered) <= {made.mesh.together(rank, *along) for along in exchanges}


@pytest.mark.parametrize(("shard", "context"), [(4, 1), (2, 2), (8, 1)])
def test_instances_deal_experts_out_among_their_own_ranks(shard: int, context: int) -> None:
    layout = Layout(strategy="distributed_optimizer", shard=shard, cp=context, ep=2)
    made = job(layout, 8 * context, 4)
    assert check(Writing(made).program()).verdict == PROVED
    mesh = made.mesh
    near, far = (mesh.together(0, f"expert_{way}") for way in ("shard", "replicate"))
    assert (len(near), len(far)) == (shard * context // 2, 8 // shard)
    assert {one for rank in near for one in mesh.together(rank, "expert_replicate")} == {
        *mesh.together(0, "expert_data")
    }
    moved = {group for _, group in summed(made)}
    assert near in moved
    assert (far in moved) is (shard < 8)


def test_instances_that_do_not_divide_the_experts_ranks_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"makes 4 instances.* the 2 ranks .*; write `shard` 4"):
        mesh_of(Layout(strategy="distributed_optimizer", shard=2, ep=4), 8, 8)
