"""Steps under a layout: every program is proved, lawful, and equal to the textbook's where it has one."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.compute.prices import StackOnGpu, prices_on
from ringside.sim.program import Call, Program
from ringside.sim.program.check import PROVED, check
from ringside.sim.program.groups import process_group
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.roles import roles
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.scaling import memory
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.fully_shard import FullyShard
from ringside.sim.training.job import ParallelJob, RankModel, seconds_of, workload_on_rank
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.memory.optimizers import find_optimizer
from ringside.sim.training.parallel import simulate_parallel
from ringside.sim.training.pipeline.runtimes import Commanded
from ringside.sim.training.program import Writing
from ringside.sim.training.step import ParallelStep
from ringside.sim.training.tensor.decoder import decoder_on_rank, decoder_workload
from ringside.sim.training.tensor.layers import replicated_parameters
from ringside.sim.workload.architecture import workload
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.devices import device
from ringside.sim.workload.models import find_model

GPU = device("a100")
SMALL = Decoder(
    name="small", layers=8, width=512, heads=8, key_value_heads=4, hidden=1024, vocabulary=1024, sequence=256,
    longest=256, tied=True,
)  # fmt: skip
PIPELINES = [
    ("gpipe", 1), ("1f1b", 1), ("zb-h1", 1), ("interleaved1f1b", 2), ("looped_bfs", 2),
    ("interleaved_zero_bubble", 2), ("zbv", 2), ("dualpipev", 2),
]  # fmt: skip
STRATEGIES = ("ddp", "fsdp", "fsdp1", "hsdp", "zero1", "zero2", "zero3", "megatron_ddp",
              "distributed_optimizer", "megatron_fsdp", "zero_redundancy", "hybrid_zero")  # fmt: skip
WHOLE = ("zero2", "zero3", "megatron_fsdp")
"""Strategies without pipelines."""

HELD = {"megatron_ddp": {"gradients"}, "distributed_optimizer": {"gradients"},
        "zero_redundancy": {"gradients", "buckets"}}  # fmt: skip
"""What a rank holds all the time beside parameters and optimizer."""


def job(
    layout: Layout, ranks: int, batch: int, model: RankModel | None = None, **more: object
) -> ParallelJob:
    made = model or decoder_on_rank(SMALL, layout, StackOnGpu(prices_on(GPU, "bf16")), "float32")
    costs = Costs(memory_bandwidth=GPU.streaming)
    found = ParallelJob(
        model=made, layout=layout, mesh=mesh_of(layout, ranks, 8), batch=batch,
        optimizer=find_optimizer("adam"), costs=costs, precision="bfloat16",
    )  # fmt: skip
    return replace(found, **more)


def simulated(made: ParallelJob) -> ParallelStep:
    ranks = made.mesh.ranks
    return simulate_parallel(made, Libraries("ideal", f"star:{ranks}", {"bandwidth": "50GB/s"}, ranks))


@pytest.mark.parametrize(("schedule", "virtual"), PIPELINES)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_every_schedule_is_proved_under_every_parallelism(schedule: str, virtual: int, strategy: str) -> None:
    layout = Layout(
        strategy=strategy, tp=2, pp=2, schedule=schedule, virtual=virtual, sequence_parallel=True,
        checkpointing="selective", clip=True,
    )  # fmt: skip
    program = Writing(job(layout, 8, 4)).program()
    assert check(program).verdict == PROVED
    found = roles(program)
    assert found == roles(Program(program.name, program.ranks, program.operations))
    assert len(set(found)) == 2


@pytest.mark.parametrize(
    ("strategy", "pipeline"),
    [(one, count) for one in STRATEGIES for count in (1, 2) if count == 1 or one not in WHOLE],
)
def test_every_strategy_is_proved(strategy: str, pipeline: int) -> None:
    shard = 2 if strategy == "hsdp" else None
    layout = Layout(strategy=strategy, pp=pipeline, shard=shard)
    assert check(Writing(job(layout, 4 * pipeline, 4)).program()).verdict == PROVED


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_that_is_taken_is_given_back(strategy: str) -> None:
    layout = Layout(strategy=strategy, shard=2 if strategy == "hsdp" else None, clip=True)
    made = job(layout, 4, 3)
    left: dict[str, int] = {}
    for operation in Writing(made).operations(0):
        for pool, nbytes in operation.memory:
            left[pool] = left.get(pool, 0) + nbytes
            assert left[pool] >= 0
    held = {"parameters", "optimizer", "float32 copies", *HELD.get(strategy, ())}
    assert {pool for pool, nbytes in left.items() if nbytes} <= held


@pytest.mark.parametrize(
    ("library", "cluster", "ranks"), [("nccl", "dgx-a100:2", 16), ("ideal", "star:4", 4)]
)
@pytest.mark.parametrize(
    ("model", "accumulation"),
    [("resnet50", 1), ("bert-base", 3), ("gpt2", 1), ("llama3-8b", 2), ("mixtral-8x7b", 1)],
)
def test_ddp_by_a_layout_is_the_step_of_before(
    library: str, cluster: str, ranks: int, model: str, accumulation: int
) -> None:
    found_model = find_model(model)
    if isinstance(found_model, Decoder):
        pace = StackOnGpu(prices_on(GPU, "bf16"))
        work = decoder_workload(found_model, pace, 8, "float32")
        parts = decoder_on_rank(found_model, Layout(micro_batch=8), pace, "float32")
    else:
        work = workload(found_model, GPU, 8)
        parts = workload_on_rank(work, units=False)
    libraries = Libraries(library, cluster, {}, ranks)
    optimizer = find_optimizer("adam")
    costs = Costs(memory_bandwidth=GPU.streaming, spread=0.02, contention=0.1)
    made = job(Layout(micro_batch=8), ranks, 8 * accumulation, parts, costs=costs)
    found = simulate_parallel(made, libraries)
    before = simulate_step(
        work, process_group(libraries.of(tuple(range(ranks)))), DataParallel(accumulation=accumulation),
        replace(costs, optimizer_s=optimizer.seconds(work.totals.nbytes, GPU.streaming)),
    )  # fmt: skip
    assert found.step_s == pytest.approx(before.step_s, rel=1e-12)
    assert found.samples == before.samples
    most = memory(work, DataParallel(), optimizer)
    # gradients of the only backward come as activations go
    assert most.total - most.gradients <= found.peak_nbytes <= most.total
    if accumulation > 1:
        assert found.peak_nbytes == most.total
    (stage,) = found.stages
    for name in ("compute_s", "contention_s", "copy_s", "communication_s", "exposed_s"):
        assert getattr(stage, name) == pytest.approx(getattr(before, name), rel=1e-9, abs=1e-12)


def reduced(made: ParallelJob) -> int:
    """Return the bytes of whole gradients that a rank reduces in a step."""
    return sum(
        operation.action.collective.nbytes
        for operation in Writing(made).operations(0)
        if isinstance(operation.action, Call)
        and operation.action.collective.kind in ("reduce_scatter", "all_reduce")
    )


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp1", "hsdp", "zero_redundancy"])
@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_torch_reduces_in_every_backward_unless_told_otherwise(strategy: str, micro_batches: int) -> None:
    """Under no_sync once a step; and what is unreduced is then all gradients, else a layer's or two."""
    layout = Layout(strategy=strategy, shard=2 if strategy == "hsdp" else None)
    each, once = (job(replace(layout, no_sync=no_sync), 4, micro_batches) for no_sync in (False, True))
    one = job(layout, 4, 1)
    assert reduced(each) == micro_batches * reduced(one)
    assert reduced(once) == reduced(one)
    assert check(Writing(each).program()).verdict == PROVED
    pools = [
        simulated(made).stages[0].peak.by_pool.get("unreduced gradients", 0) for made in (each, once, one)
    ]
    assert pools[0] <= pools[2]
    if "fsdp" in strategy and micro_batches > 1:
        assert pools[1] > pools[0]


@pytest.mark.parametrize(("schedule", "virtual"), PIPELINES)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_torchs_pipelines_reduce_once_a_step(strategy: str, schedule: str, virtual: int) -> None:
    layout = Layout(strategy=strategy, pp=2, schedule=schedule, virtual=virtual)
    made = [job(replace(layout, no_sync=no_sync), 4, batch) for no_sync in (False, True) for batch in (4, 8)]
    assert len({reduced(one) for one in made}) == 1


def test_one_rank_alone_computes_and_steps() -> None:
    made = job(Layout(micro_batch=2), 1, 6)
    found = simulated(made)
    parts = made.model
    computed = 3 * sum(seconds_of(layer) for layer in parts.layers)
    nbytes = sum(layer.nbytes for layer in parts.layers)
    stepped = made.optimizer.seconds(nbytes, GPU.streaming)
    assert found.step_s == pytest.approx(computed + stepped, rel=1e-12)
    assert found.bubble_share == 0
    assert not found.exposed_s


def test_what_nobody_shares_is_held_all_the_same() -> None:
    alone = [simulated(job(Layout(strategy=one, micro_batch=2), 1, 6)) for one in ("ddp", "zero_redundancy")]
    assert alone[0].peak_nbytes == alone[1].peak_nbytes


@pytest.mark.parametrize("strategy", ["megatron_ddp", "distributed_optimizer", "zero1", "zero2", "zero3"])
def test_context_parallel_ranks_sum_gradients_and_deal_optimizers_out(strategy: str) -> None:
    layout = Layout(strategy=strategy, cp=2, cp_method="ulysses", clip=True)
    shared, apart = (job(one, 8, 2) for one in (layout, replace(layout, cp=1)))
    assert check(Writing(shared).program()).verdict == PROVED
    assert shared.samples == apart.samples // 2
    assert _of_all(shared) == _of_all(apart) != []
    held = [simulated(made).stages[0].peak.by_pool for made in (shared, apart)]
    assert [held[0][name] for name in ("parameters", "optimizer")] == [
        held[1][name] for name in ("parameters", "optimizer")
    ]


def _of_all(made: ParallelJob) -> list[tuple[str, int]]:
    """Return a rank's collectives of parameters and gradients with all others."""
    return [
        (call.collective.kind, call.collective.nbytes)
        for operation in Writing(made).operations(0)
        if isinstance(call := operation.action, Call) and len(call.group.ranks) == made.mesh.ranks
    ]


def test_context_parallel_ranks_have_buckets_of_ddp() -> None:
    found = Writing(job(Layout(cp=2), 2, 1)).step(0)
    assert found.held["buckets"] == found.held["parameters"]


layouts = st.builds(
    lambda strategy, tensor, pipeline, checkpointing, clips: Layout(
        strategy=strategy, tp=tensor, pp=pipeline[0], schedule=pipeline[1], virtual=pipeline[2],
        checkpointing=checkpointing, sequence_parallel=tensor > 1, clip=clips,
    ),
    st.sampled_from(["ddp", "fsdp"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([(1, "1f1b", 1), *[(2, *one) for one in PIPELINES]]),
    st.sampled_from(["none", "selective", "full"]),
    st.booleans(),
)  # fmt: skip


@pytest.mark.slow
@given(layouts, st.sampled_from([2, 4]), st.sampled_from([4, 8]))
@settings(max_examples=25)
def test_a_stage_computes_waits_or_stands_still_all_the_time(layout: Layout, data: int, batch: int) -> None:
    made = job(layout, layout.tp * layout.pp * data, batch)
    found = simulated(made)
    computed = [
        made.micro_batches * sum(seconds_of(layer) for number in own for layer in made.layers(number))
        for own in map(made.placement.of, range(layout.pp))
    ]
    for stage, least in zip(found.stages, computed, strict=True):
        parts = stage.busy_s + stage.bubble_s + stage.exposed_s
        assert parts == pytest.approx(found.step_s, rel=1e-9)
        assert stage.busy_s >= least * (1 - 1e-9)
        assert found.step_s >= stage.communication_s
        for name, seconds in stage.exposed_by_s.items():
            assert seconds <= stage.communication_by_s[name] + 1e-12
    assert found.step_s >= max(computed)
    assert 0 <= found.bubble_share < 1


@pytest.mark.parametrize(("schedule", "virtual"), PIPELINES)
def test_more_micro_batches_leave_a_smaller_bubble(schedule: str, virtual: int) -> None:
    layout = Layout(pp=2, schedule=schedule, virtual=virtual)
    shares = [simulated(job(layout, 2, batch)).bubble_share for batch in (4, 8, 16)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]


def test_the_bubble_of_1f1b_is_the_textbooks() -> None:
    """Narayanan et al., arXiv:2104.04473, section 2.2: (p - 1) / (m + p - 1) where stages are alike."""
    layout = Layout(pp=4)
    whole = decoder_on_rank(SMALL, layout, StackOnGpu(prices_on(GPU, "bf16")), "float32")
    alike = [layer for layer in whole.layers if layer.name.startswith("layer ")]
    parts = replace(whole, layers=tuple(alike), between_nbytes=(0,) * 7, tied=None, letters="")
    made = job(layout, 4, 8, parts, costs=Costs(memory_bandwidth=inf))
    found = simulate_parallel(made, Libraries("ideal", "star:4", {"latency": "0s"}, 4))
    assert found.bubble_share == pytest.approx(3 / (8 + 3), rel=1e-6)


def test_what_is_sent_by_each_strategy() -> None:
    """Bytes that a rank hands to collectives of data parallelism in a step."""
    parts = decoder_on_rank(SMALL, Layout(), StackOnGpu(prices_on(GPU, "bf16")), "float32")
    nbytes = sum(layer.nbytes for layer in parts.layers)
    sent = {}
    for strategy in ("ddp", "fsdp"):
        calls: dict[str, int] = {}
        for operation in Writing(job(Layout(strategy=strategy), 4, 2)).operations(0):
            if isinstance(operation.action, Call):
                collective = operation.action.collective
                calls[collective.kind] = calls.get(collective.kind, 0) + collective.nbytes
        sent[strategy] = calls
    assert sent["ddp"] == {"all_reduce": 2 * nbytes}
    assert sent["fsdp"]["reduce_scatter"] == 2 * nbytes
    # in bfloat16, forward and backward of two micro-batches, but for the root, which backward finds whole
    assert 3 * nbytes // 2 <= sent["fsdp"]["all_gather"] <= 4 * nbytes // 2


@pytest.mark.parametrize(("optimizer", "uses"), [("adam", 3), ("sgd", 1)])
def test_dtensor_sums_a_norms_gradient_wherever_the_optimizer_uses_it(optimizer: str, uses: int) -> None:
    """As ``ringside record`` sees torch do, 2.13's foreach steps: lerp by it, addcmul with it twice."""
    layout = Layout(tp=2, tp_style="dtensor", sequence_parallel=True)
    made = replace(job(layout, 2, 2), optimizer=find_optimizer(optimizer))
    sums = [one for one in Writing(made).operations(0) if one.name == "gradients of the norms"]
    assert len(sums) == uses * len(replicated_parameters(made.layers(0))) > 0


def test_fsdp2_is_told_by_a_pipeline_when_to_gather_and_to_sum() -> None:
    assert issubclass(FullyShard, Commanded)
    layout = Layout(strategy="fsdp", pp=2, schedule="zbv", virtual=2)
    kinds = [
        operation.action.collective.kind
        for operation in Writing(job(layout, 4, 4)).operations(0)
        if isinstance(operation.action, Call) and operation.action.group.ranks == (0, 1)
    ]
    # each unit once, however many micro-batches pass: two layers a stage, the embedding, and the head
    assert kinds.count("reduce_scatter") == 2 * 2 + 2


def exchanged(layout: Layout) -> list[tuple[str, int]]:
    """Return the kinds and bytes of what a rank calls, of a decoder whose head has its own table."""
    untied = replace(SMALL, layers=2, tied=False)
    model = decoder_on_rank(untied, layout, StackOnGpu(prices_on(GPU, "bf16")), "float32")
    return [
        (operation.action.collective.kind, operation.action.collective.nbytes)
        for operation in Writing(job(layout, 4, 1, model)).operations(0)
        if isinstance(operation.action, Call)
    ]


def test_wrapped_ends_are_units_of_their_own_and_the_head_stays_whole() -> None:
    table, norm = 1024 * 512, 2 * 512
    rooted, wrapped = (exchanged(Layout(strategy="fsdp", wrap_ends=one)) for one in (False, True))
    (layer,) = {one for one in rooted if one[0] == "all_gather"} & {
        one for one in wrapped if one[0] == "all_gather"
    }
    summed = ("reduce_scatter", 2 * layer[1])
    root, embedding, head = (count * 2 for count in (2 * table + norm, table, table + norm))
    assert rooted == [
        ("all_gather", root), *[layer] * 4, *[summed] * 2, ("reduce_scatter", 2 * root),
    ]  # fmt: skip
    assert sorted(wrapped) == sorted([
        *[("all_gather", embedding)] * 2, *[layer] * 4, ("all_gather", head),
        ("reduce_scatter", 2 * head), *[summed] * 2, ("reduce_scatter", 2 * embedding),
    ])  # fmt: skip
    gathers = [nbytes for kind, nbytes in wrapped if kind == "all_gather"]
    assert gathers == [embedding, layer[1], layer[1], head, layer[1], layer[1], embedding]


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp1", "hsdp"])
def test_without_resharding_backward_gathers_nothing(strategy: str) -> None:
    plain, kept = (
        exchanged(Layout(strategy=strategy, shard=2 if strategy == "hsdp" else None, no_reshard=one))
        for one in (False, True)
    )
    gathers = [one for one in plain if one[0] == "all_gather"]
    assert kept == [*gathers[:3], *(one for one in plain if one[0] != "all_gather")]
    assert gathers[3:] == [gathers[2]] * 2


def test_an_end_whose_table_is_used_twice_is_not_wrapped() -> None:
    layout = Layout(strategy="fsdp", wrap_ends=True)
    with pytest.raises(LayoutError, match="leave `wrap_ends` out"):
        job(layout, 4, 1)
    assert job(replace(layout, pp=2), 4, 2).copies_embedding
