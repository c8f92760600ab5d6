"""FSDP1's steps: messages of its strategies, its prefetch and its rate limit.

FSDP1 refuses CPU, so orders are those of PyTorch 2.13's source, torch/distributed/fsdp/_runtime_utils.py.
"""

import pytest

from ringside.sim.program import Compute, Wait
from ringside.sim.training.flat_shard import FlatPolicy
from ringside.sim.training.fsdp_policy import GATHERED, UNREDUCED
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.mesh import Mesh
from tests.sim.training.fsdp.models import Played, labels, language_model, layer, played, program, tensor

FORWARD = ["AG root 160", "AG b0 64", "AG b1 64", "AG b2 64"]
SUMS = ["RS b2 64", "RS b1 64", "RS b0 64", "RS root 160"]


def order(policy: FlatPolicy, mesh: Mesh | None = None, micro_batches: int = 1) -> list[str]:
    return labels(program(language_model(), policy, mesh or Mesh(shard=2), micro_batches=micro_batches))


def test_full_shard_gathers_the_next_before_backward_of_one() -> None:
    backward = ["AG b2 64", "AG b1 64", "RS b2 64", "AG b0 64", "RS b1 64", "RS b0 64", "RS root 160"]
    assert order(FlatPolicy()) == [*FORWARD, *backward]


def test_prefetch_after_backward_asks_before_gradients_are_summed() -> None:
    """The root has no backward of its own to come after, so b2 is gathered when it is needed."""
    backward = ["AG b2 64", "AG b1 64", "RS b2 64", "AG b0 64", "RS b1 64", "RS b0 64", "RS root 160"]
    assert order(FlatPolicy(backward_prefetch="post")) == [*FORWARD, *backward]


def test_without_prefetch_sums_come_before_the_next_gather() -> None:
    backward = ["AG b2 64", "RS b2 64", "AG b1 64", "RS b1 64", "AG b0 64", "RS b0 64", "RS root 160"]
    assert order(FlatPolicy(backward_prefetch=None)) == [*FORWARD, *backward]


def test_an_embedding_of_its_own_is_summed_in_its_turn_though_tokens_need_no_gradient() -> None:
    layers = language_model(ends=True)
    assert labels(program(layers, FlatPolicy(), Mesh(shard=2)))[-2:] == ["RS b0 64", "RS emb 80"]


def test_what_is_kept_after_forward_is_not_gathered_again() -> None:
    assert order(FlatPolicy(strategy="shard_grad_op")) == [*FORWARD, *SUMS]


def test_nothing_is_gathered_where_nothing_is_dealt_out() -> None:
    found = order(FlatPolicy(strategy="no_shard"), Mesh(shard=2, replicate=2))
    assert found == [label.replace("RS", "AR") for label in SUMS]


def test_a_hybrid_sums_its_shards_across_nodes() -> None:
    found = order(FlatPolicy(strategy="hybrid_shard"), Mesh(shard=2, replicate=2))
    assert found[4:] == [
        "AG b2 64", "AG b1 64", "RS b2 64", "AR b2 32", "AG b0 64", "RS b1 64", "AR b1 32",
        "RS b0 64", "AR b0 32", "RS root 160", "AR root 80",
    ]  # fmt: skip


def test_gradients_stay_whole_between_micro_batches() -> None:
    gathers = [*FORWARD, "AG b2 64", "AG b1 64", "AG b0 64"]
    found = order(FlatPolicy(no_sync=True), micro_batches=2)
    assert found[: len(gathers)] == gathers
    assert found[len(gathers) :] == order(FlatPolicy())
    kept = order(FlatPolicy(strategy="shard_grad_op", no_sync=True), micro_batches=2)
    assert kept == [*FORWARD, *SUMS], "without a sum nothing that forward keeps is freed"
    step = played(program(language_model(), FlatPolicy(no_sync=True), Mesh(shard=2), micro_batches=2))
    kept, made = 160 + 3 * 64, 160 + 64
    most = max(nbytes for _, nbytes in step.pools()[UNREDUCED])
    assert most == 4 * (kept + made + 64), "b2's gradients are concatenated, the root has made some"
    assert order(FlatPolicy(), micro_batches=2) == 2 * order(FlatPolicy())


def test_the_gradients_of_a_unit_are_concatenated_before_they_are_reduced() -> None:
    policy = FlatPolicy(no_sync=True, memory_bandwidth=1e3)
    made = program(language_model(), policy, Mesh(shard=2), micro_batches=2)
    done = [
        (one.name.split()[0], one.action.seconds if isinstance(one.action, Compute) else None)
        for one in made.operations(0)
        if one.name.endswith("gradients of b1") and not isinstance(one.action, Wait)
    ]
    assert done == [
        ("joined", 0.512), ("joined", 0.512), ("added", 0.768), ("cast", 0.512), ("reduce-scatter", None),
        ("shard", 0.0),
    ]  # fmt: skip


def uniform(count: int) -> list[RankLayer]:
    return [layer(f"b{number}", tensor("weight", 8), backward=1.0) for number in range(count)]


def step(count: int, policy: FlatPolicy, gather_s: float) -> Played:
    return played(program(uniform(count), policy, Mesh(shard=2)), seconds_per_byte=gather_s / 32)


def test_the_host_is_held_until_what_was_freed_first_has_been_computed() -> None:
    """A gather is asked for once two freed before it are down to one: the first layer has computed."""
    free, held = (step(5, FlatPolicy(limit_all_gathers=limit), 0.125) for limit in (False, True))
    begins = [held.moment(f"all-gather of b{number}")[0] for number in range(5)]
    ends = [held.moment(f"b{number}, micro-batch 0")[1] for number in range(5)]
    assert begins[:2] == [0, 0.125]
    assert begins[2:] == [ends[0], ends[1], ends[2]]
    assert [free.moment(f"all-gather of b{number}")[0] for number in range(5)] == [
        0.125 * number for number in range(5)
    ]
    assert held.step_s == free.step_s, "two ahead are enough to hide a short gather"


def test_the_rate_limit_bounds_what_is_gathered() -> None:
    """Without it all six are gathered while the first computes, then b5 and b4 again."""

    def most(*, limit: bool) -> int:
        pools = step(6, FlatPolicy(limit_all_gathers=limit), 0.125).pools()
        return max(nbytes for _, nbytes in pools[GATHERED])

    assert most(limit=True) == 3 * 32
    assert most(limit=False) == 8 * 32


def test_forward_prefetch_asks_one_ahead() -> None:
    made = program(uniform(3), FlatPolicy(forward_prefetch=True, limit_all_gathers=False), Mesh(shard=2))
    names = [one.name for one in made.operations(0)]
    assert names.index("all-gather of b1") < names.index("b0, micro-batch 0")
    plain = program(uniform(3), FlatPolicy(limit_all_gathers=False), Mesh(shard=2))
    names = [one.name for one in plain.operations(0)]
    assert names.index("all-gather of b1") > names.index("b0, micro-batch 0")


def test_mixed_precision_gathers_and_sums_in_its_types() -> None:
    policy = FlatPolicy(param_dtype="bfloat16", reduce_dtype="float32", memory_bandwidth=1e3)
    made = program(uniform(2), policy, Mesh(shard=2))
    sizes = {
        (one.action.collective.kind, one.action.collective.nbytes)  # type: ignore[union-attr]
        for one in made.operations(0)
        if one.category in ("all_gather", "reduce_scatter")
    }
    assert sizes == {("all_gather", 16), ("reduce_scatter", 32)}
    assert not any(one.name.startswith("copy-out") for one in made.operations(0))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"strategy": "zero3"}, "unknown FSDP1 strategy 'zero3'; write one of full_shard"),
        ({"backward_prefetch": "both"}, "write pre, post or None"),
        ({"param_dtype": "int8"}, "unknown type of parameters or gradients 'int8'"),
        ({"memory_bandwidth": 0.0}, "write more than 0"),
    ],
)
def test_what_fsdp1_has_not_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlatPolicy(**wrong)  # type: ignore[arg-type]
