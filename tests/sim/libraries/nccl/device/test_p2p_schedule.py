"""NCCL's sends and receives: rounds, parts, channels, cards, PXN."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.collective import Collective
from ringside.sim.engine.bounds import lower_bounds
from ringside.sim.engine.events import simulate
from ringside.sim.libraries.nccl import SYSTEMS, communicator, point_to_point
from ringside.sim.libraries.nccl.device.machine import NETWORK, Hops, MachineRoutes
from ringside.sim.libraries.nccl.device.p2p import KINDS
from ringside.sim.libraries.nccl.device.p2p_schedule import message_parts, p2p_schedule, rounds
from ringside.sim.libraries.nccl.device.plays import plays
from ringside.sim.libraries.nccl.device.traffic import least_traffic
from ringside.sim.libraries.nccl.library import overhead_s, simulated
from ringside.sim.proof import prove
from ringside.topologies import check

K, M = 2**10, 2**20


def only_play(comm, kind, nbytes, itemsize=4):
    (play,) = plays(comm, Collective(kind, comm.ranks, nbytes, itemsize), "p2p", "simple")
    return play


def ways(comm):
    return MachineRoutes(comm, Hops.of(comm, "ring", "all_to_all"))


@settings(max_examples=60)
@given(
    st.sampled_from(["dgx-h100", "dgx1-v100", "a100-pcie4"]),
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from(KINDS),
    st.one_of(st.integers(0, M), st.sampled_from([0, 1, 3 * M + 4])),
    st.sampled_from([1, 2, 4, 8]),
)
def test_every_shape_and_size_is_right(machine, nodes, gpus, kind, nbytes, itemsize):
    comm = communicator(machine, nodes, 2 if nodes * gpus == 1 else gpus)
    prove(p2p_schedule(comm, Collective(kind, comm.ranks, nbytes, itemsize)))


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(1, 8))
@settings(max_examples=30)
def test_every_rank_meets_every_other_once(nodes, gpus):
    comm = communicator("dgx-h100", nodes + 1, gpus)
    found = rounds(comm)
    assert len(found) == len(set(found)) == comm.ranks - 1
    assert all(0 <= n < comm.nodes and 0 <= local < gpus and (n, local) != (0, 0) for n, local in found)


def test_rounds_go_by_triangular_numbers_own_node_first():
    assert [local for _, local in rounds(communicator("dgx-h100"))] == [1, 3, 6, 2, 7, 5, 4]
    nodes = [node for node, _ in rounds(communicator("h100-1gpu", 6))]
    assert nodes == [1, 3, 2, 5, 4]


@pytest.mark.parametrize(
    ("machine", "nodes", "nbytes", "parts"),
    [
        # inside a node parts of 64 KiB to 16 MiB, on 32 / 8 channels at first
        ("dgx-h100", 1, 4 * K, [4 * K]),
        ("dgx-h100", 1, 128 * K, [64 * K] * 2),
        ("dgx-h100", 1, 8 * M, [2 * M] * 4),
        ("dgx-h100", 1, 256 * M, [16 * M] * 16),
        # between nodes of 64 KiB to 128 KiB, on one channel at first and 4 at the most
        ("dgx-h100", 2, 64 * K, [64 * K]),
        ("dgx-h100", 2, 256 * K, [128 * K] * 2),
        ("dgx-h100", 2, 4 * M, [M] * 4),
    ],
)
def test_a_message_has_as_many_channels_as_its_size_deserves(machine, nodes, nbytes, parts):
    comm = communicator(machine, nodes)
    way = point_to_point(comm, "all_to_all", nbytes)
    found = message_parts(comm, way, nbytes, 4)
    assert [sum(part) for part in found] == parts
    assert all(chunk <= way.chunk for part in found for chunk in part)


@given(
    st.sampled_from(["dgx-h100", "dgx1-v100", "h100-1gpu"]), st.sampled_from([2, 8]), st.integers(0, 2**30)
)
def test_parts_are_the_message(machine, nodes, nbytes):
    comm = communicator(machine, nodes)
    way = point_to_point(comm, "sendrecv", nbytes)
    found = message_parts(comm, way, nbytes, 1)
    assert sum(map(sum, found)) == nbytes
    assert len(found) <= way.channels


def test_a_message_leaves_by_the_gpu_beside_the_receivers_card():
    route = [hop[0] for hop in ways(communicator("dgx-h100", 2)).route(0, 11)]
    assert route[:3] == ["node0/gpu0", "node0/nvs0", "node0/gpu3"]
    assert route[route.index(NETWORK) - 1] == "node0/net3"
    assert route[route.index(NETWORK) + 1] == "node1/net3"


def test_without_nvlink_it_leaves_by_the_senders_own_card():
    comm = communicator(replace(SYSTEMS["dgx-a100"], nvlink=0.0, nvswitch=False), 2)
    route = [hop[0] for hop in ways(comm).route(0, 11)]
    assert route[route.index(NETWORK) - 1] == "node0/net0"
    assert route[route.index(NETWORK) + 1] == "node1/net3"


@pytest.mark.parametrize(("nics", "cards"), [(4, 4), (8, 8), (16, 16)])
def test_all_cards_carry_the_same_in_all_to_all(nics, cards):
    comm = communicator(replace(SYSTEMS["dgx-h100"], nics=nics), 2)
    play = only_play(comm, "all_to_all", 16 * M)
    leaving = {}
    for (src, dst, channel), count in play.schedule.connections().items():
        for a, b in play.routes.on(channel).route(src, dst):
            if b == NETWORK:
                leaving[a] = leaving.get(a, 0) + count
    assert len(leaving) == 2 * cards
    assert len(set(leaving.values())) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("machine", "nodes"),
    [("dgx-h100", 1), ("dgx-h100", 2), ("dgx1-v100", 2), ("polaris-a100", 3), ("alps-gh200", 2),
     ("rtx4090-pcie", 1), ("summit-v100", 2)],
)  # fmt: skip
def test_large_messages_come_near_the_links_bound_and_never_below(machine, nodes, kind):
    comm = communicator(machine, nodes)
    play = only_play(comm, kind, 32 * M)
    check(play.graph)
    bounds = lower_bounds(play.schedule, play.graph, play.routes)
    seconds = simulate(play.schedule, play.graph, routes=play.routes).time_s
    assert max(bounds) * (1 - 1e-9) <= seconds
    assert seconds <= 2.1 * bounds.traffic + bounds.latency
    assert seconds >= least_traffic(comm, play.schedule.collective) * (1 - 1e-9)


def test_all_to_all_behind_nvswitch_is_the_estimate_without_its_base_latency():
    comm = communicator("dgx-h100")
    asked = Collective("all_to_all", 8, 64 * M, 4)
    taken, *_ = simulated(comm, asked, "p2p", "simple")
    estimate = point_to_point(comm, "all_to_all", 64 * M).time_us - 8.4
    assert taken * 1e6 == pytest.approx(estimate, rel=0.01)


# nccl-tests' sendrecv on 8 H100 (github.com/xxrjun/nccl-tests-cluster, single-node, NCCL 2.29.2)
@pytest.mark.parametrize(
    ("nbytes", "measured_us"),
    [(32 * M, 422.19), (64 * M, 820.17), (128 * M, 825.74), (256 * M, 896.4), (512 * M, 1509.11)],
)
def test_sends_to_the_next_rank_are_within_8_per_cent_of_what_was_measured(nbytes, measured_us):
    comm = communicator("dgx-h100")
    taken, *_ = simulated(comm, Collective("sendrecv", 8, nbytes, 4), "p2p", "simple")
    assert (taken + overhead_s(comm, "p2p", "simple")) * 1e6 == pytest.approx(measured_us, rel=0.08)


def test_with_very_many_peers_a_rank_sends_to_a_batch_after_the_one_before():
    comm = communicator("h100-1gpu", 40)
    plan = p2p_schedule(comm, Collective("all_to_all", 40, 40 * K, 4))
    assert len(plan.after) == 40 * (39 - 32)  # four channels, eight peers on each
    prove(plan)
    play = only_play(comm, "all_to_all", 40 * K)
    assert simulate(play.schedule, play.graph, routes=play.routes).num_transfers == 40 * 39


def test_a_machine_without_cards_has_no_way_out():
    comm = communicator("dgx-h100", 2)
    cardless = replace(comm, system=replace(comm.system, nics=0))
    with pytest.raises(ValueError, match="no card by which a message leaves"):
        ways(cardless).route(0, 8)
