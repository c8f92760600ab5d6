"""Laws of every step of FSDP: it ends, frees its memory, and takes at least its bound."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringside.sim.collective import ITEMSIZE
from ringside.sim.program import Compute
from ringside.sim.program.check import PROVED, check
from ringside.sim.program.roles import claimed
from ringside.sim.training.flat_shard import STRATEGIES, FlatPolicy, flat_elements
from ringside.sim.training.fsdp_policy import (
    FLAT,
    GATHERED,
    OPTIMIZER,
    PARAMETERS,
    FullyShardPolicy,
    Unit,
    ahead,
    padded,
)
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.mesh import Mesh
from ringside.sim.workload.workload import Tensor
from tests.sim.training.fsdp.models import Played, calls, layer, played, program, tensor

SECONDS = st.sampled_from([0.0, 0.25, 1.0, 3.0])
DTYPES = st.sampled_from([None, "bfloat16", "float16", "float32"])

EXACT = 1e-9


@st.composite
def models(draw: st.DrawFn) -> list[RankLayer]:
    return [
        layer(
            f"layer {number}",
            *[
                tensor(f"weight {which}", draw(st.integers(1, 9)), draw(st.integers(1, 3)))
                for which in range(draw(st.integers(0, 2)))
            ],
            forward=draw(SECONDS),
            backward=draw(SECONDS),
            wrapped=draw(st.booleans()),
        )
        for number in range(draw(st.integers(1, 4)))
    ]


BANDWIDTHS = st.sampled_from([math.inf, 100.0])

FULLY_SHARD = st.builds(
    FullyShardPolicy,
    reshard_after_forward=st.sampled_from([None, True, False, 1]),
    param_dtype=DTYPES,
    reduce_dtype=DTYPES,
    no_sync=st.booleans(),
    reshard_after_backward=st.booleans(),
    separate_reduce_scatter=st.booleans(),
    max_input_buffers=st.integers(1, 3),
    memory_bandwidth=BANDWIDTHS,
)
FLAT_SHARD = st.builds(
    FlatPolicy,
    strategy=st.sampled_from(STRATEGIES),
    backward_prefetch=st.sampled_from(["pre", "post", None]),
    forward_prefetch=st.booleans(),
    limit_all_gathers=st.booleans(),
    use_orig_params=st.booleans(),
    no_sync=st.booleans(),
    param_dtype=DTYPES,
    reduce_dtype=DTYPES,
    memory_bandwidth=BANDWIDTHS,
)
MESHES = st.builds(Mesh, shard=st.integers(1, 4), replicate=st.integers(1, 2), tensor=st.integers(1, 2))


@settings(max_examples=60)
@given(models(), FULLY_SHARD | FLAT_SHARD, MESHES, st.integers(1, 3), st.booleans())
@example(
    [
        layer("first", tensor("weight", 1), backward=0.0, wrapped=False),
        layer("second", backward=0.0, wrapped=False),
    ],
    FullyShardPolicy(reshard_after_backward=False, max_input_buffers=1), Mesh(shard=2), 1, False,
)  # fmt: skip
@example(
    [layer("only", tensor("weight", 1), forward=0.0, backward=0.0, wrapped=False)],
    FullyShardPolicy(reshard_after_backward=False, max_input_buffers=1), Mesh(shard=2), 1, False,
)  # fmt: skip
def test_every_step_ends_gives_back_what_it_takes_and_is_no_shorter_than_its_parts(
    layers: list[RankLayer],
    policy: FullyShardPolicy | FlatPolicy,
    mesh: Mesh,
    micro_batches: int,
    clips: bool,
) -> None:
    made = program(layers, policy, mesh, micro_batches=micro_batches, optimizer_s=0.5, clips=clips)
    assert check(made).verdict == PROVED
    step = played(made, seconds_per_byte=1 / 64)
    operations = made.operations(0)
    lanes: dict[str, float] = {}
    for one in operations:
        if isinstance(one.action, Compute) and one.lane:
            lanes[one.lane] = lanes.get(one.lane, 0.0) + one.action.seconds
    queues: dict[str, float] = {}
    for call in calls(made):
        queues[call.group.name] = queues.get(call.group.name, 0.0) + call.collective.nbytes / 64
    assert step.step_s >= max(*lanes.values(), *queues.values(), 0) - EXACT
    for pool, moments in step.pools().items():
        assert min(nbytes for _, nbytes in moments) >= 0, pool
        if pool not in (PARAMETERS, OPTIMIZER):
            assert moments[-1][1] == 0, pool


@settings(max_examples=20)
@given(models(), FULLY_SHARD, st.sampled_from([2, 3, 4]), st.integers(1, 2))
def test_on_gloo_nothing_overlaps(
    layers: list[RankLayer], policy: FullyShardPolicy, ranks: int, micro_batches: int
) -> None:
    made = program(layers, policy, Mesh(shard=ranks), micro_batches=micro_batches, library="gloo")
    assert check(made).verdict == PROVED
    alone = sum(one.action.seconds for one in made.operations(0) if isinstance(one.action, Compute))
    together = sum(call.collective.nbytes / 64 for call in calls(made))
    assert played(made, seconds_per_byte=1 / 64).step_s == pytest.approx(alone + together)


@given(st.integers(1, 50), st.integers(1, 5), st.integers(1, 9))
def test_a_tensor_is_dealt_out_in_rows_of_which_all_ranks_have_as_many_as_the_first(
    rows: int, columns: int, ranks: int
) -> None:
    found = padded(tensor("weight", rows, columns), ranks)
    assert found % (ranks * columns) == 0
    assert rows * columns <= found < rows * columns + ranks * columns
    assert padded(Tensor("bias", rows), ranks) == padded(tensor("bias", rows), ranks)


def test_a_flat_parameter_is_padded_once_and_aligned_where_it_keeps_its_parts() -> None:
    unit = Unit("block", (0,), (Tensor("weight", 5), Tensor("bias", 3)))
    assert flat_elements(unit, 3, aligned=False) == 9
    assert flat_elements(unit, 3, aligned=True) == 12  # 5, 3 of padding, 3, 1 of padding
    assert unit.padded_nbytes(3) == (6 + 3) * ITEMSIZE["float32"]


def uniform(count: int, forward: float = 1.0, backward: float = 2.0) -> list[RankLayer]:
    return [
        layer(f"b{number}", tensor("weight", 8), forward=forward, backward=backward)
        for number in range(count)
    ]


@pytest.mark.parametrize("gather_s", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("copy_s", [0.0, 0.5])
def test_forward_goes_by_the_two_buffers(gather_s: float, copy_s: float) -> None:
    """A gather begins after the one before it and after the last copy-out but one; its own comes after it."""
    count, nbytes = 5, 32
    bandwidth = 2 * nbytes / copy_s if copy_s else math.inf
    step = played(
        program(uniform(count), FullyShardPolicy(memory_bandwidth=bandwidth), Mesh(shard=2)),
        seconds_per_byte=gather_s / nbytes,
    )
    copy_in_s = nbytes / bandwidth
    copied_in = gathered = 0.0
    copied_out: list[float] = []
    computed = 0.0
    for number in range(count):
        freed = copied_out[number - 2] if number >= 2 else 0.0
        copied_in = max(copied_in, freed) + copy_in_s
        gathered = max(copied_in, gathered) + gather_s
        copied_out.append(max(gathered, computed) + copy_s)
        computed = copied_out[-1] + 1.0
        assert step.moment(f"all-gather of b{number}")[1] == pytest.approx(gathered)
        assert step.moment(f"b{number}, micro-batch 0")[1] == pytest.approx(computed)


def test_no_more_than_two_flat_buffers_are_filled_at_once() -> None:
    step = played(program(uniform(6), FullyShardPolicy(), Mesh(shard=2)), seconds_per_byte=1 / 320)
    assert max(nbytes for _, nbytes in step.pools()[FLAT]) == 2 * 32


def test_what_is_gathered_ahead_of_its_turn_takes_memory() -> None:
    names = [f"b{number}" for number in range(6)]
    policy = FullyShardPolicy(forward_prefetch=ahead(names, 3))
    step = played(program(uniform(6), policy, Mesh(shard=2)), seconds_per_byte=1 / 320)
    assert max(nbytes for _, nbytes in step.pools()[FLAT]) > 2 * 32


def test_what_is_gathered_in_vain_is_freed_at_the_end_of_backward() -> None:
    made = program(uniform(3), FullyShardPolicy(backward_prefetch={"b0": ("b2",)}), Mesh(shard=2))
    assert sum(one.name == "all-gather of b2" for one in made.operations(0)) == 3
    assert check(made).verdict == PROVED
    assert played(made, seconds_per_byte=1 / 320).pools()[FLAT][-1][1] == 0


def test_kept_parameters_are_all_there_at_the_end_of_forward() -> None:
    def most(reshard: bool | int) -> int:
        policy = FullyShardPolicy(reshard_after_forward=reshard)
        step = played(program(uniform(6), policy, Mesh(shard=4)), seconds_per_byte=1 / 320)
        return max(nbytes for _, nbytes in step.pools()[GATHERED])

    assert most(False) == 6 * 32
    assert most(True) == 32
    assert most(2) == 6 * 16 + 32  # all halves, and the one that is whole


def test_a_communicator_of_its_own_lets_gathers_pass_reduce_scatters() -> None:
    """With one queue b0 is gathered once b2 is scattered, with two as soon as it is asked for."""
    alone, both = (
        played(
            program(uniform(3), FullyShardPolicy(separate_reduce_scatter=own), Mesh(shard=2)),
            seconds_per_byte=1 / 32,
        )
        for own in (False, True)
    )
    assert alone.moment("all-gather of b0", 1)[0] == alone.moment("reduce-scatter of the gradients of b2")[1]
    assert both.moment("all-gather of b0", 1)[0] == both.moment("b2, micro-batch 0", 1)[1]
    assert both.step_s <= alone.step_s


def test_more_buffers_let_backward_run_ahead_of_slow_reduce_scatters() -> None:
    def seconds(buffers: int) -> float:
        policy = FullyShardPolicy(max_input_buffers=buffers, reshard_after_forward=False)
        return played(
            program(uniform(4), policy, Mesh(shard=2)), seconds_per_byte=5 / 32
        ).moment("b0, micro-batch 0", 1)[1]  # fmt: skip

    assert seconds(3) < seconds(1)


@given(models(), st.sampled_from([None, "bfloat16"]))
@settings(max_examples=20)
def test_a_rank_alone_computes_and_copies(layers: list[RankLayer], param_dtype: str | None) -> None:
    policy = FullyShardPolicy(memory_bandwidth=100.0, param_dtype=param_dtype)
    made = program(layers, policy, Mesh())
    assert calls(made) == []
    lane = sum(
        one.action.seconds
        for one in made.operations(0)
        if isinstance(one.action, Compute) and one.lane == "compute"
    )
    copies = [one for one in made.operations(0) if one.category == "copy"]
    assert bool(copies) == any(one.parameters for one in layers)
    assert lane <= played(made).step_s + EXACT
    free = program(layers, FullyShardPolicy(), Mesh())
    assert played(free).step_s == pytest.approx(
        sum(work.seconds for one in layers for work in (*one.forward, *one.backward))
    )


def test_one_rank_stands_for_all_as_the_program_says() -> None:
    policy = FullyShardPolicy(reshard_after_forward=2, separate_reduce_scatter=True)
    mesh = Mesh(tensor=2, shard=4, replicate=2)
    assert claimed(program(uniform(3), policy, mesh, clips=True)) == (0,) * 16


def test_static_memory_is_a_share_of_parameters_and_optimizer() -> None:
    step: Played = played(program(uniform(4), FullyShardPolicy(), Mesh(shard=4), optimizer="adam"))
    pools = step.pools()
    assert pools[PARAMETERS][-1][1] == 4 * 8
    assert pools[OPTIMIZER][-1][1] == 2 * 4 * 8
