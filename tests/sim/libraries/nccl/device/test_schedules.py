import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl import Settings, communicator, rings, trees
from ringside.sim.libraries.nccl.chunks import channel_bytes
from ringside.sim.libraries.nccl.device.schedules import channel_schedule, schedule
from ringside.sim.proof import prove
from ringside.sim.schedule import ScheduleError, Step

K, M = 2**10, 2**20

CASES = [
    ("all_reduce", "ring"),
    ("all_reduce", "tree"),
    ("all_gather", "ring"),
    ("reduce_scatter", "ring"),
    ("broadcast", "ring"),
    ("reduce", "ring"),
]
PROTOCOLS = ("ll", "ll128", "simple")


def collective(comm, kind, nbytes, itemsize=4, root=0):
    return Collective(kind, comm.ranks, nbytes, itemsize, root)


@settings(max_examples=40)
@given(
    st.sampled_from(["dgx-a100", "dgx-h100", "dgx1-v100"]),
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from(CASES),
    st.sampled_from(PROTOCOLS),
    st.one_of(st.integers(0, 2 * M), st.sampled_from([0, 1, 3 * M + 4])),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(0, 63),
)
def test_every_shape_size_and_protocol_checks(machine, nodes, gpus, case, protocol, nbytes, itemsize, root):
    if nodes * gpus == 1:
        gpus = 2
    comm = communicator(machine, nodes, gpus)
    kind, algorithm = case
    root = root % comm.ranks if kind in ("broadcast", "reduce") else 0
    prove(schedule(comm, collective(comm, kind, nbytes, itemsize, root), algorithm, protocol))


@pytest.mark.parametrize(("kind", "algorithm"), CASES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 8), (2, 1), (3, 2)])
def test_64_mib_checks(kind, algorithm, protocol, nodes, gpus):
    comm = communicator("dgx-h100", nodes, gpus)
    prove(schedule(comm, collective(comm, kind, 64 * M), algorithm, protocol))


def test_eight_nodes_of_eight_check():
    comm = communicator("dgx-a100", 8)
    for algorithm, protocol in (("ring", "simple"), ("tree", "ll128")):
        prove(schedule(comm, collective(comm, "all_reduce", M), algorithm, protocol))


@pytest.mark.parametrize(("kind", "algorithm"), CASES)
def test_each_channel_is_a_collective_of_its_own(kind, algorithm):
    comm = communicator("dgx-h100", 2)
    whole = collective(comm, kind, 4 * M)
    carried = channel_bytes(comm, kind, algorithm, "ll128", whole.nbytes, 4)
    gathered = kind in ("all_gather", "reduce_scatter")
    for channel in (0, len(carried) - 1):
        part = channel_schedule(comm, whole, algorithm, "ll128", channel)
        prove(part)
        assert part.collective.nbytes == carried[channel] * (comm.ranks if gathered else 1)
        assert {number for _, _, number in part.connections()} == {channel}


def test_channels_share_the_data_and_run_over_their_own_rings():
    comm = communicator("dgx-h100", 2)
    plan = schedule(comm, collective(comm, "all_reduce", 8 * M), "ring", "simple")
    for channel, ring in enumerate(rings(comm)):
        wanted = set(zip(ring.tolist(), np.roll(ring, -1).tolist(), strict=True))
        assert {(src, dst) for src, dst, number in plan.connections() if number == channel} == wanted


def test_rings_of_two_nodes_cross_on_one_rail_and_alternate():
    comm = communicator("dgx-h100", 2)
    plan = schedule(comm, collective(comm, "all_reduce", 8 * M), "ring", "simple")
    crossings = {(src, dst, c) for src, dst, c in plan.connections() if src // 8 != dst // 8}
    assert all(src % 8 == dst % 8 for src, dst, _ in crossings)
    assert all(len({src % 8 for src, _, c in crossings if c == channel}) == 2 for channel in range(16))


def test_trees_move_every_byte_up_once_and_down_once():
    comm = communicator("dgx-a100", 4)
    plan = schedule(comm, collective(comm, "all_reduce", 16 * M), "tree", "simple")
    parents = trees(comm)
    for (src, dst, channel), transfers in plan.connections().items():
        assert parents[channel].parent[src] == dst or parents[channel].parent[dst] == src
        assert transfers == 2  # 1 MiB of each channel in chunks of 512 KiB
    moved = sum(plan.traffic().values())
    assert moved == 2 * (comm.ranks - 1) * 16 * M


@pytest.mark.parametrize(
    ("protocol", "credits", "messages"),
    [
        # 4 MiB of each of 16 channels on 16 ranks: loops of 512 KiB, 9.2 MB and 32 MiB
        ("ll", 8, {32 * K}),
        ("ll128", 8, {256 * K}),
        ("simple", 4, {128 * K}),
    ],
)
def test_a_ring_sends_slices_of_its_protocol(protocol, credits, messages):
    comm = communicator("dgx-a100", 2)
    plan = schedule(comm, collective(comm, "all_reduce", 64 * M), "ring", protocol)
    assert plan.credits == credits
    found = {int(size) for moved in plan.steps() for size in plan.nbytes(moved)}
    assert found == messages


def test_full_chunks_of_simple_go_in_two_slices_of_one_mib():
    comm = communicator("h100-1gpu", 2)
    plan = channel_schedule(comm, collective(comm, "all_reduce", 64 * M), "ring", "simple", 0)
    assert {int(size) for moved in plan.steps() for size in plan.nbytes(moved)} == {M}


def test_broadcast_goes_along_the_ring_from_the_root_and_reduce_to_it():
    comm = communicator("dgx-a100", 2)
    for kind, ends in (("broadcast", (None, 5)), ("reduce", (5, None))):
        plan = channel_schedule(comm, collective(comm, kind, M, root=5), "ring", "simple", 3)
        ring = rings(comm)[3].tolist()
        pairs = {(src, dst) for src, dst, _ in plan.connections()}
        left_out = set(zip(ring, ring[1:] + ring[:1], strict=True)) - pairs
        ((src, dst),) = left_out
        assert (src, dst)[0 if ends[0] else 1] == 5


def test_steps_are_made_anew_and_lazily():
    comm = communicator("dgx-h100", 2)
    plan = schedule(comm, collective(comm, "all_reduce", 2**34), "tree", "simple")
    assert isinstance(next(plan.steps()), Step)
    assert next(plan.steps()).chunk.tolist() == next(plan.steps()).chunk.tolist()


def test_a_schedule_for_other_ranks_fails_its_check():
    comm = communicator("dgx-h100", 2)
    plan = schedule(comm, collective(comm, "all_reduce", M), "ring", "ll")
    steps = list(plan.steps())
    broken = type(plan)(plan.collective, "ring", plan.chunks, lambda: iter(steps[:-1]))
    with pytest.raises(ScheduleError, match="lacks the contribution"):
        prove(broken)


@pytest.mark.parametrize(
    ("kind", "algorithm", "protocol", "ranks", "message"),
    [
        ("all_reduce", "nvls", "simple", 16, "on several nodes needs a network that adds"),
        ("all_reduce", "nvls_tree", "ll", 16, "nvls_tree has no ll; write simple"),
        ("all_reduce", "pat", "simple", 16, "NCCL has no pat all_reduce; write one of tree, ring, collnet"),
        ("all_gather", "pat", "simple", 16, "needs nodes of one rank, but these have 8"),
        ("all_reduce", "collnet_chain", "simple", 16, "needs a network that adds: NCCL_COLLNET_ENABLE=1"),
        ("broadcast", "tree", "simple", 16, "NCCL has no tree broadcast; write one of ring"),
        ("all_reduce", "ring", "ll256", 16, "write ll128 "),
        ("all_reduce", "ring", "ll", 8, "2 nodes x 8 GPUs = 16 ranks"),
        ("all_to_all", "ring", "ll", 16, "not in NCCL's tuner"),
    ],
)
def test_what_has_no_schedule_is_refused(kind, algorithm, protocol, ranks, message):
    comm = communicator("dgx-h100", 2)
    with pytest.raises(ValueError, match=message):
        schedule(comm, Collective(kind, ranks, M, 4), algorithm, protocol)


def test_more_ctas_than_search_channels_repeat_their_rings_and_check():
    comm = communicator("dgx-a100", 2, 2, settings=Settings(min_ctas=40))
    for algorithm in ("ring", "tree"):
        prove(schedule(comm, collective(comm, "all_reduce", 8 * M), algorithm, "ll"))
