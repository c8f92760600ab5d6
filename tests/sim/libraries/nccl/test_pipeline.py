from functools import cache

import pytest

from sim.collective import Collective
from sim.libraries.nccl import communicator
from sim.libraries.nccl.constants import HOP_US
from sim.libraries.nccl.device.closed_form import closed_form
from sim.libraries.nccl.device.wires import channels, wires
from sim.libraries.nccl.library import simulated
from topologies import check

K, M = 2**10, 2**20
PROTOCOLS = ("ll", "ll128", "simple")
SIZES = (8 * K, 512 * K, 4 * M + 4, 64 * M)

SHAPES = [
    # one GPU a node, 2 to 32 ranks
    *(("h100-1gpu", nodes, 1) for nodes in (2, 3, 8, 32)),
    # eight, or fewer, GPUs a node
    ("dgx-a100", 1, 2),
    ("dgx-h100", 1, 8),
    ("dgx-h100", 2, 8),
    ("dgx1-v100", 3, 8),
    ("dgx-a100", 4, 8),
    ("dgx-a100", 2, 4),
    ("a100-pcie4", 2, 4),
]


@cache
def errors(machine, nodes, gpus, kind, algorithm, protocol, sizes=SIZES):
    comm = communicator(machine, nodes, gpus)
    found = []
    for nbytes in sizes:
        collective = Collective(kind, comm.ranks, nbytes, 4)
        engine, _ = simulated(comm, collective, algorithm, protocol)
        found.append(closed_form(comm, collective, algorithm, protocol) / engine - 1)
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize(("machine", "nodes", "gpus"), SHAPES)
def test_the_engine_is_within_3_per_cent_of_the_closed_form(machine, nodes, gpus, algorithm, protocol):
    assert max(map(abs, errors(machine, nodes, gpus, "all_reduce", algorithm, protocol))) < 0.03


@pytest.mark.benchmark  # minutes long, so not among the tests of every change
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("machine", ["h100-1gpu", "dgx-a100", "dgx-h100", "dgx1-v100"])
def test_every_size_and_node_count_within_3_per_cent(machine, algorithm, protocol):
    sizes = tuple(1 << power for power in range(13, 27))
    for nodes in range(2, 33) if machine == "h100-1gpu" else range(1, 5):
        gpus = 1 if machine == "h100-1gpu" else 8
        found = errors(machine, nodes, gpus, "all_reduce", algorithm, protocol, sizes)
        assert max(map(abs, found)) < 0.03, nodes


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("machine", "nodes", "gpus"), [("h100-1gpu", 5, 1), ("dgx-h100", 1, 8), ("dgx-a100", 3, 8)]
)
def test_lines_are_exact(machine, nodes, gpus, protocol, kind):
    assert max(map(abs, errors(machine, nodes, gpus, kind, "ring", protocol))) < 1e-3


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("machine", "nodes"), [("dgx-h100", 1), ("dgx-a100", 2)])
def test_half_an_all_reduce_within_3_per_cent(machine, nodes, protocol, kind):
    assert max(map(abs, errors(machine, nodes, 8, kind, "ring", protocol))) < 0.03


def test_one_loop_of_a_ring_by_hand():
    # 2 ranks on 2 nodes, LL, 64 KiB: 4 KiB a cell, 4 channels of 16 KiB, two ranks' chunks of 8 KiB
    comm = communicator("h100-1gpu", 2)
    (channel,) = channels(comm, Collective("all_reduce", 2, 64 * K, 4), "ring", "ll")
    assert channel.nbytes == 16 * K
    assert channel.between.bandwidth == 24e9 / 2 * 0.5
    assert channel.between.latency == pytest.approx(5e-6)
    expected = 2 * (5e-6 + 8 * K / 6e9)
    assert closed_form(comm, Collective("all_reduce", 2, 64 * K, 4), "ring", "ll") == pytest.approx(expected)
    engine, _ = simulated(comm, Collective("all_reduce", 2, 64 * K, 4), "ring", "ll")
    assert engine == pytest.approx(expected)


def test_credits_hold_up_small_simple_rings_across_nodes():
    comm = communicator("dgx-a100", 2)
    seconds, _ = simulated(comm, Collective("all_reduce", 16, 8 * K, 4), "ring", "simple")
    assert seconds == pytest.approx(15 * 14e-6 + 3.4e-6, rel=0.01)


def test_flows_share_a_nic_four_ways_and_on_two_nodes_two_ways():
    for nodes, flows in ((2, 2), (4, 4), (8, 4), (7, 4)):
        comm = communicator("dgx-h100", nodes)
        found = channels(comm, Collective("all_reduce", comm.ranks, 64 * M, 4), "tree", "simple")
        assert {channel.between.bandwidth for channel in found} == {48e9 / flows}
        assert {channel.inside.bandwidth for channel in found} == {24e9}


def test_a_single_channel_has_its_search_channel_to_itself():
    comm = communicator("dgx-a100")
    (channel,) = channels(comm, Collective("all_reduce", 8, 8 * K, 4), "ring", "simple")
    assert channel.inside.bandwidth == 20e9
    assert channel.inside.latency == pytest.approx(HOP_US["nvlink"]["ring"][2] * 1e-6)


@pytest.mark.parametrize(("machine", "inside"), [("dgx-h100", "nvlink"), ("a100-pcie4", "pcie")])
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_wires_are_a_sound_topology(machine, inside, algorithm):
    comm = communicator(machine, 3)
    for channel in channels(comm, Collective("all_reduce", comm.ranks, 64 * M, 4), algorithm, "ll128"):
        graph = wires(comm, algorithm, channel)
        check(graph)
        assert {data["kind"] for _, _, data in graph.edges(data=True)} == {inside, "ib"}


def test_the_timeline_is_the_slowest_channels():
    comm = communicator("dgx-h100", 2)
    seconds, timeline = simulated(comm, Collective("all_reduce", 16, M, 4), "tree", "ll", traced=True)
    assert max(span.delivered for span in timeline.transfers) == pytest.approx(seconds)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_nothing_still_takes_its_latencies(algorithm, protocol):
    comm = communicator("dgx-h100", 2)
    nothing = Collective("all_reduce", 16, 0, 4)
    assert simulated(comm, nothing, algorithm, protocol)[0] > 0
    assert closed_form(comm, nothing, algorithm, protocol) > 0
