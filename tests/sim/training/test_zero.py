"""Sharded optimizers: messages, memory, and their order."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.collective import Collective
from ringside.sim.program import Call, Wait
from ringside.sim.training.advice import changes
from ringside.sim.training.layers import Exchange, Kernels, RankLayer, as_modules
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.mesh import Mesh
from ringside.sim.training.strategies import MEGATRON
from ringside.sim.training.zero.broadcasts import HybridZero
from ringside.sim.training.zero.partition import ZeroPolicy, dealt, most
from ringside.sim.training.zero.stages import ReducedWhole
from ringside.sim.training.zero.third import DealtOut
from ringside.sim.workload.workload import Tensor
from tests.sim.training.zero_steps import SMALL, calls, job, made, pools, rank, sent, step


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_stage_1_sums_once_and_stage_2_each_micro_batch_and_both_gather_once(micro_batches: int) -> None:
    layers = made()
    for stage, times in ((1, 1), (2, micro_batches)):
        own = rank()
        found = calls(step(ReducedWhole(own, layers, ZeroPolicy(), stage=stage), own, layers, micro_batches))
        # all-reduces although the configuration says reduce_scatter, twice the bytes of one on a ring
        assert found == [("all_reduce", 6000)] * times + [("all_gather", 6000)]


def test_stages_1_and_2_stand_still_while_a_bucket_is_summed() -> None:
    layers = made()
    own = rank()
    operations = step(ReducedWhole(own, layers, ZeroPolicy(reduce_bucket_size=1500), stage=2), own, layers)
    assert calls(operations) == [("all_reduce", 2000)] * 3 + [("all_gather", 6000)]
    for place, operation in enumerate(operations):
        if isinstance(operation.action, Call):
            following = operations[place + 1]
            assert isinstance(following.action, Wait)
            assert following.after == (place,)


def test_a_gradient_larger_than_a_bucket_goes_alone() -> None:
    layers = [*made(1), *made(1, 5000), *made(1)]
    own = rank()
    found = calls(step(ReducedWhole(own, layers, ZeroPolicy(reduce_bucket_size=2000), stage=1), own, layers))
    assert found == [("all_reduce", 2000), ("all_reduce", 10000), ("all_reduce", 2000), ("all_gather", 14000)]


def test_parts_are_padded() -> None:
    layers = made(1, 1001)
    own = rank()
    assert calls(step(ReducedWhole(own, layers, ZeroPolicy(), stage=1), own, layers))[-1][1] == 1008 * 2


@pytest.mark.parametrize(("reuse", "times"), [(10**9, 1), (1, 2)])
def test_stage_3_gathers_again_only_what_is_not_used_again_soon(reuse: int, times: int) -> None:
    layers = made(4, 100_000)
    policy = ZeroPolicy(max_reuse_distance=reuse, param_persistence_threshold=1000, prefetch_bucket_size=1)
    own = rank()
    found = calls(step(DealtOut(own, layers, policy), own, layers, 2))
    whole = 4 * 200_000
    gathered = sum(nbytes for kind, nbytes in found if kind == "all_gather")
    # the last layer is used at once again
    assert gathered == 2 * (whole * times - (200_000 if times > 1 else 0))
    assert [one for one in found if one[0] == "reduce_scatter"] == [("reduce_scatter", whole)] * 2


def test_stage_3_gathers_ahead_as_far_as_the_bucket_goes() -> None:
    layers = made(6, 1000)
    for ahead, together in ((1, 1), (2000, 2), (100_000, 5)):
        policy = ZeroPolicy(param_persistence_threshold=1, prefetch_bucket_size=ahead)
        own = rank()
        first, second, *_ = calls(step(DealtOut(own, layers, policy), own, layers))
        assert first == ("all_gather", 2000)
        assert second == ("all_gather", 2000 * together)


def test_stage_3_stops_gathering_ahead_where_enough_is_live() -> None:
    layers = made(6, 1000)
    policy = ZeroPolicy(param_persistence_threshold=1, max_live_parameters=2000)
    own = rank()
    live, most_live = 0, 0
    for operation in step(DealtOut(own, layers, policy), own, layers):
        for pool, nbytes in operation.memory:
            live += nbytes if pool == "gathered parameters" else 0
            most_live = max(most_live, live)
    # a module that is needed comes whatever is live; those kept for backward are live too
    assert live == 0
    assert most_live == 6 * 2000


def test_small_parameters_are_gathered_once_after_the_step() -> None:
    layers = made(3, 1000)
    own = rank()
    assert calls(step(DealtOut(own, layers, ZeroPolicy()), own, layers)) == [
        ("reduce_scatter", 6000), ("all_gather", 6000),
    ]  # fmt: skip


def test_owners_broadcast_in_the_order_of_ranks() -> None:
    layers = [*made(1, 300), *made(1, 500), *made(1, 200)]
    own = rank(shard=2, replicate=2)
    sharing = HybridZero(own, layers, ZeroPolicy(reduce_bucket_size=600))
    operations = step(sharing, own, layers, 2)
    assert calls(operations) == [
        ("all_reduce", 400), ("all_reduce", 1000), ("all_reduce", 600),
        ("broadcast", 1000), ("broadcast", 1000),
    ]  # fmt: skip
    groups = [one.action.group.ranks for one in operations if isinstance(one.action, Call)]
    assert groups == [(0, 1, 2, 3)] * 3 + [(0, 1)] * 2
    roots = [one.action.collective.root for one in operations if isinstance(one.action, Call)]
    assert roots[-2:] == [0, 1]


def test_who_owns_nothing_broadcasts_nothing() -> None:
    layers = made(3)
    own = rank(16)
    found = calls(step(HybridZero(own, layers, ZeroPolicy()), own, layers))
    assert [kind for kind, _ in found].count("broadcast") == 3


def test_zero_redundancy_broadcasts_each_tensor_and_sums_as_ddp_does() -> None:
    ours, ddp = sent(job("zero_redundancy")), sent(job("ddp"))
    assert ours["all_reduce"] == ddp["all_reduce"]
    assert ours["broadcast"] * job("ddp").job.micro_batches == ddp["all_reduce"]
    kinds = Counter(kind for kind, _ in calls(list(job("zero_redundancy").operations(0))))
    tensors = sum(len(layer.parameters) for layer in job("ddp").job.layers(0))
    assert kinds["broadcast"] == tensors


OWN_PART = {"float32 copies": (0, 4), "optimizer": (0, 8)}


@pytest.mark.parametrize(
    ("strategy", "held"),
    [
        # bytes a parameter on d ranks: (whole, dealt out), as DeepSpeed's and Megatron-LM's pages count them
        ("zero1", {"parameters": (2, 0), **OWN_PART}),
        ("zero2", {"parameters": (2, 0), **OWN_PART}),
        ("zero3", {"parameters": (0, 2), **OWN_PART}),
        (
            "megatron_ddp",
            {"parameters": (2, 0), "gradients": (4, 0), "float32 copies": (4, 0), "optimizer": (8, 0)},
        ),
        ("distributed_optimizer", {"parameters": (2, 0), "gradients": (4, 0), **OWN_PART}),
        (
            "zero_redundancy",
            {"parameters": (4, 0), "gradients": (4, 0), "buckets": (4, 0), "optimizer": (0, 8)},
        ),
        ("hybrid_zero", {"parameters": (2, 0), **OWN_PART}),
    ],
)  # fmt: skip
def test_what_a_rank_holds_all_the_time(strategy: str, held: dict[str, tuple[int, int]]) -> None:
    found = pools(job(strategy))
    count = SMALL.num_parameters
    assert found.keys() == held.keys()
    for pool, (whole, part) in held.items():
        # owners of whole tensors have more than their share
        assert found[pool] == pytest.approx(count * (whole + part / 8), rel=0.3 if part else 1e-3)


TENSORS = st.lists(st.integers(1, 1000), min_size=1, max_size=40)


@given(TENSORS, st.integers(1, 12))
def test_tensors_are_dealt_out_whole_and_evenly(counts: list[int], ranks: int) -> None:
    tensors = [Tensor(f"t{number}", count) for number, count in enumerate(counts)]
    parts = dealt(tensors, ranks)
    assert len(parts) == ranks
    assert sorted(one.name for own in parts for one in own) == sorted(one.name for one in tensors)
    loads = [sum(one.count for one in own) for own in parts]
    assert most(parts) == max(loads)
    assert max(loads) - min(loads) <= max(counts)
    assert loads[0] == max(counts) or len(parts[0]) > 1


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
    st.lists(st.floats(0.1, 5.0), min_size=1, max_size=4),
    st.booleans(),
)
def test_a_layer_as_modules_does_the_same(counts: list[int], works: list[float], overlaps: bool) -> None:
    between = Exchange(("tensor",), Collective("all_reduce", 2, 8), overlaps)
    passed = tuple(part for seconds in works for part in (Kernels(seconds), between))
    layer = RankLayer(
        name="layer", parameters=tuple(Tensor(f"m{n}.weight", count) for n, count in enumerate(counts)),
        forward=passed, backward=passed, recomputed=passed, kept=(("activations", 7),), recomputed_nbytes=5,
    )  # fmt: skip
    modules = as_modules([layer])
    assert len(modules) == len(counts)
    assert tuple(one for module in modules for one in module.parameters) == layer.parameters
    assert sum(module.kept_nbytes for module in modules) == 7
    for parts in (
        [part for module in modules for part in module.forward],
        [part for module in reversed(modules) for part in module.backward],
        [part for module in reversed(modules) for part in module.recomputed],
    ):
        assert sum(part.seconds for part in parts if isinstance(part, Kernels)) == pytest.approx(sum(works))
        assert [part for part in parts if isinstance(part, Exchange)] == [between] * len(works)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"strategy": "zero2", "pp": 2}, "DeepSpeed has no pipeline under zero2; write `strategy`"),
        ({"strategy": "zero3", "pp": 2}, "DeepSpeed has no pipeline under zero3"),
        ({"strategy": "zero1", "pp": 2, "schedule": "gpipe"}, "no gpipe pipeline; write `sch"),
        (
            {"strategy": "distributed_optimizer", "pp": 2, "schedule": "zbv", "virtual": 2},
            "Megatron-LM, the framework of distributed_optimizer, has no zbv pipeline; write `schedule`",
        ),
        ({"strategy": "ddp", "reduce_dtype": "bfloat16"}, "`reduce_dtype` needs `strategy` .*megatron_ddp"),
        ({"strategy": "megatron_ddp", "overlap_param_gather": True}, "needs `strategy` distributed_opt"),
        ({"strategy": "ddp", "no_reshard": True}, "needs `strategy` fsdp or fsdp1 or hsdp, not ddp"),
        ({"strategy": "megatron_ddp", "param_dtype": "float32"}, "`param_dtype` needs `strategy` fsdp"),
        ({"strategy": "megatron_ddp", "shard": 2}, "`shard` applies to hsdp, distributed_optimizer"),
        ({"strategy": "megatron_ddp", "pp": 2, "schedule": "gpipe"}, "framework of megatron_ddp, has no gp"),
        ({"strategy": "zero_redundancy", "tp": 2}, "cannot handle cut ones; leave `tp` out"),
        ({"strategy": "zero1", "shard": 2}, "`shard` applies to hsdp, distributed_optimizer, hybrid_zero"),
        ({"strategy": "zero3", "no_sync": True}, "and FSDP, and `strategy` is zero3; leave it out"),
        ({"strategy": "zero_offload"}, "'zero_offload' offloads parameters or optimizers to the host"),
        ({"strategy": "zero_infinity"}, "write `strategy` zero3 or fsdp"),
        ({"strategy": "fsdp_cpu_offload"}, "is not simulated"),
        ({"strategy": "zero4"}, "unknown strategy 'zero4'; write zero"),
    ],
)  # fmt: skip
def test_layouts_that_a_framework_refuses(words: dict[str, str], complaint: str) -> None:
    with pytest.raises(LayoutError, match=complaint):
        Layout(**words)  # type: ignore[arg-type]


def test_groups_that_do_not_divide_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"`shard` 3 does not divide 8 .*; write one of 1, 2, 4, 8"):
        mesh_of(Layout(strategy="hybrid_zero", shard=3), 8, 8)
    assert mesh_of(Layout(strategy="hybrid_zero", shard=8), 16, 8) == Mesh(shard=8, replicate=2)
    assert mesh_of(Layout(strategy="hybrid_zero"), 16, 8) == Mesh(shard=16)


@pytest.mark.parametrize("words", [{"dtype": "half"}, {"reduce_bucket_size": 0}, {"memory_bandwidth": 0.0}])
def test_policies_that_cannot_be_are_refused(words: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="write"):
        ZeroPolicy(**words)  # type: ignore[arg-type]


def test_advice_offers_no_layout_that_a_framework_refuses() -> None:
    for strategy in ("zero2", "zero3", "zero_redundancy", *MEGATRON, "hybrid_zero"):
        found = list(changes(Layout(strategy=strategy)))
        assert any(one.strategy != strategy for one in found) == (strategy != "zero3")
        assert all(one.pp == 1 for one in found if one.strategy in ("zero2", "zero3"))
