"""FSDP2 driven by a pipeline's runtime: one gather, one sum, and its errors."""

import pytest

from ringside.sim.program import Call, Wait
from ringside.sim.program.check import PROVED, check
from ringside.sim.training.fsdp_policy import GATHERED, UNREDUCED, FullyShardPolicy
from ringside.sim.training.mesh import Mesh
from tests.sim.training.fsdp.models import (
    KINDS,
    driven,
    labels,
    language_model,
    layer,
    played,
    program,
    tensor,
)

KEEPS = FullyShardPolicy(reshard_after_forward=False)


@pytest.mark.parametrize("split", [False, True])
def test_micro_batches_gather_once_and_are_summed_once_from_the_root(split: bool) -> None:
    made = driven(KEEPS, language_model(), split=split)
    names = [
        f"{KINDS[one.action.collective.kind]} {one.name.split()[-1]}"
        for one in made.operations(0)
        if isinstance(one.action, Call)
    ]
    order = ["root", "b0", "b1", "b2"]
    assert names == [*(f"AG {unit}" for unit in order), *(f"RS {unit}" for unit in order)]
    assert check(made).verdict == PROVED


def test_gradients_of_the_whole_stage_stay_in_the_type_of_their_sum() -> None:
    policy = FullyShardPolicy(reshard_after_forward=False, param_dtype="bfloat16", reduce_dtype="float32")
    pools = played(driven(policy, language_model())).pools()
    elements = 160 + 3 * 64
    assert max(nbytes for _, nbytes in pools[UNREDUCED]) >= 4 * elements
    assert max(nbytes for _, nbytes in pools[GATHERED]) == 2 * elements
    assert pools[UNREDUCED][-1][1] == pools[GATHERED][-1][1] == 0


def test_on_gloo_the_runtime_gathers_aside_and_waits_for_the_first_pass() -> None:
    operations = driven(KEEPS, language_model(), library="gloo").operations(0)
    calls = [place for place, one in enumerate(operations) if isinstance(one.action, Call)]
    first_wait = next(place for place, one in enumerate(operations) if isinstance(one.action, Wait))
    assert calls[:4] == [place for place in calls if place < first_wait]


def test_a_stage_that_gives_back_after_forward_gathers_in_each_pass() -> None:
    names = [
        one.name
        for one in driven(FullyShardPolicy(reshard_of={"root": True}), language_model()).operations(0)
    ]
    assert names.count("all-gather of b0") == 1 + 2 + 1, "forward twice more, and backward once"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"reshard_after_forward": 3}, "kept by groups of 3 after forward; write a divisor of 4"),
        ({"reshard_after_forward": 0}, "write a divisor of 4"),
        ({"reshard_of": {"b7": True}}, "unknown unit of the model 'b7'; write one of root, b0, b1, b2"),
        ({"forward_prefetch": {"b0": ("tail",)}}, "unknown unit of the model 'tail'"),
        ({"backward_prefetch": {"tail": ("b0",)}}, "unknown unit of the model 'tail'"),
        ({"param_dtype": "int8"}, "unknown type of parameters or gradients 'int8'"),
        ({"reduce_dtype": "half"}, "unknown type of parameters or gradients 'half'"),
        ({"max_input_buffers": 0}, "write 1 or more"),
        ({"memory_bandwidth": -1.0}, "write more than 0"),
    ],
)
def test_what_fully_shard_refuses_is_refused(policy: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        labels(program(language_model(), FullyShardPolicy(**policy), Mesh(shard=4)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "message"), [(("b", "b"), "two units are called 'b'"), (("root",), "'root'")]
)
def test_layers_of_one_name_or_of_the_roots_are_refused(names: tuple[str, ...], message: str) -> None:
    layers = [layer(name, tensor("w", 2)) for name in names]
    with pytest.raises(ValueError, match=message):
        program(layers, FullyShardPolicy(), Mesh(shard=2)).operations(0)
