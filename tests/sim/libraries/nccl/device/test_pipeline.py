from collections import Counter
from functools import cache

import pytest

from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl import SYSTEMS, communicator
from ringside.sim.libraries.nccl.device.closed_form import closed_form
from ringside.sim.libraries.nccl.device.connect import ordered, shares, through_port
from ringside.sim.libraries.nccl.device.plays import channels, wires
from ringside.sim.libraries.nccl.device.schedules import schedule
from ringside.sim.libraries.nccl.library import LAUNCH_S, overhead_s, simulated
from ringside.topologies import Routes, check, load

K, M, G = 2**10, 2**20, 2**30
PROTOCOLS = ("ll", "ll128", "simple")
CLOSE = {"ring": 1e-3, "tree": 0.05}
"""How far the closed form may be from the engine."""
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
    # where two chunks on their way between nodes wait for each other
    ("dgx-h100", 3, 3),
]


@cache
def errors(machine, nodes, gpus, kind, algorithm, protocol, sizes=SIZES):
    comm = communicator(machine, nodes, gpus)
    found = []
    for nbytes in sizes:
        collective = Collective(kind, comm.ranks, nbytes, 4)
        engine, *_ = simulated(comm, collective, algorithm, protocol)
        found.append(closed_form(comm, collective, algorithm, protocol) / engine - 1)
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize(("machine", "nodes", "gpus"), SHAPES)
def test_the_closed_form_is_the_engines_for_rings_and_near_it_for_trees(
    machine, nodes, gpus, algorithm, protocol
):
    found = errors(machine, nodes, gpus, "all_reduce", algorithm, protocol)
    assert max(map(abs, found)) < CLOSE[algorithm]


@pytest.mark.benchmark  # minutes long, so not among the tests of every change
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("machine", ["h100-1gpu", "dgx-a100", "dgx-h100", "dgx1-v100"])
def test_every_size_and_node_count(machine, algorithm, protocol):
    sizes = tuple(1 << power for power in range(13, 27))
    for nodes in range(2, 33) if machine == "h100-1gpu" else range(1, 5):
        gpus = 1 if machine == "h100-1gpu" else 8
        found = errors(machine, nodes, gpus, "all_reduce", algorithm, protocol, sizes)
        assert max(map(abs, found)) < CLOSE[algorithm], nodes


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("machine", "nodes", "gpus"), [("h100-1gpu", 5, 1), ("dgx-h100", 1, 8), ("dgx-a100", 3, 8)]
)
def test_lines_are_exact(machine, nodes, gpus, protocol, kind):
    assert max(map(abs, errors(machine, nodes, gpus, kind, "ring", protocol))) < 1e-3


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("machine", "nodes", "gpus"),
    [("dgx-h100", 1, 8), ("dgx-a100", 2, 8), ("dgx-h100", 3, 3), ("dgx-h100", 2, 3)],
)
def test_half_an_all_reduce_is_exact(machine, nodes, gpus, protocol, kind):
    assert max(map(abs, errors(machine, nodes, gpus, kind, "ring", protocol))) < CLOSE["ring"]


def test_one_loop_of_a_ring_by_hand():
    # 2 ranks on 2 nodes, LL, 64 KiB: 4 KiB a cell, 4 channels of 16 KiB, two ranks' chunks of 8 KiB
    comm = communicator("h100-1gpu", 2)
    (channel,) = channels(comm, Collective("all_reduce", 2, 64 * K, 4), "ring", "ll")
    assert channel.nbytes == 16 * K
    assert channel.between.bandwidth == 24e9 / 2 * 0.5
    assert channel.between.latency == pytest.approx(5e-6)
    expected = 2 * (5e-6 + 8 * K / 6e9)
    assert closed_form(comm, Collective("all_reduce", 2, 64 * K, 4), "ring", "ll") == pytest.approx(expected)
    engine, *_ = simulated(comm, Collective("all_reduce", 2, 64 * K, 4), "ring", "ll")
    assert engine == pytest.approx(expected)


def test_credits_hold_up_small_simple_rings_across_nodes():
    comm = communicator("dgx-a100", 2)
    seconds, *_ = simulated(comm, Collective("all_reduce", 16, 8 * K, 4), "ring", "simple")
    assert seconds == pytest.approx(15 * 14e-6 + 3.4e-6, rel=0.01)


def test_flows_share_a_nic_four_ways_and_on_two_nodes_two_ways():
    for nodes, flows in ((2, 2), (4, 4), (8, 4), (7, 4)):
        comm = communicator("dgx-h100", nodes)
        found = channels(comm, Collective("all_reduce", comm.ranks, 64 * M, 4), "tree", "simple")
        assert {channel.between.bandwidth for channel in found} == {48e9 / flows}
        # 16 channels at each GPU's port
        assert {round(channel.inside.bandwidth) for channel in found} == {23_175_000_000}
        assert all(channel.port for channel in found)


def test_a_single_channel_has_its_search_channel_to_itself():
    comm = communicator("dgx-a100")
    (channel,) = channels(comm, Collective("all_reduce", 8, 8 * K, 4), "ring", "simple")
    assert channel.inside.bandwidth == 20e9
    assert channel.inside.latency == pytest.approx(3.4e-6)


# NCCL_ALGO=Tree, NCCL_PROTO=Simple on 4 H100, out of place (github.com/waynehacking8/nccl-collectives-bench,
# results/algo_sweep, NCCL 2.29.2)
@pytest.mark.parametrize(("nbytes", "measured_us"), [(256 * M, 1706.78), (G, 6433.99), (8 * G, 49674.6)])
def test_a_tree_inside_a_node_is_within_10_per_cent_of_what_was_measured(nbytes, measured_us):
    comm = communicator("dgx-h100", 1, 4)
    taken, *_ = simulated(comm, Collective("all_reduce", 4, nbytes, 4), "tree", "simple")
    seconds = taken + overhead_s(comm, "tree", "simple") + LAUNCH_S
    assert seconds * 1e6 == pytest.approx(measured_us, rel=0.1)
    assert closed_form(comm, Collective("all_reduce", 4, nbytes, 4), "tree", "simple") == pytest.approx(
        taken, rel=0.03
    )


CATALOGUE = [
    (machine, nodes)
    for machine in SYSTEMS
    for nodes in (1, 2, 4)
    if SYSTEMS[machine].gpus * nodes > 1 and (machine, nodes > 1) != ("gb200-nvl72", True)
]


def card(comm, algorithm, channel, node):
    """Return the card by which a channel leaves a node; a connection stays on one rail."""
    graphs = ordered(comm)
    graph = graphs.tree if algorithm == "tree" else graphs.ring
    swapped = algorithm == "ring" and graph.cross_nic == 2 and node % 2
    return graph.order[(channel ^ 1 if swapped else channel) % len(graph.order)].nics[-1]


def busiest_s(comm, plan, graph, algorithm):
    """Return the seconds of the machine's busiest link for all channels, each on its cards.

    Two ranks have one route in a topology; two channels between them may leave by two cards.
    """
    cards = {node for node, data in graph.nodes(data=True) if data["kind"] == "nic"}

    @cache
    def routes(left):
        gone = {node for node in cards if left is not None and not node.endswith(f"/nic{left}")}
        return Routes(graph.subgraph(set(graph) - gone))

    moved, carried = Counter(), Counter()
    for step in plan.steps():
        ways = zip(step.channel.tolist(), step.src.tolist(), step.dst.tolist(), strict=True)
        for way, nbytes in zip(ways, plan.nbytes(step).tolist(), strict=True):
            moved[way] += nbytes
    for (channel, src, dst), nbytes in moved.items():
        node, other = src // comm.gpus, dst // comm.gpus
        by = None if node == other else card(comm, algorithm, channel, node)
        for hop in routes(by).route(src, dst):
            carried[hop] += nbytes
    return max(nbytes / graph.edges[hop]["bandwidth"] for hop, nbytes in carried.items())


@pytest.mark.parametrize(
    ("kind", "algorithm"), [("all_reduce", "ring"), ("all_reduce", "tree"), ("all_gather", "ring")]
)
@pytest.mark.parametrize(("machine", "nodes"), CATALOGUE)
def test_no_pair_is_quicker_than_its_machines_links(machine, nodes, kind, algorithm):
    comm = communicator(machine, nodes)
    few = comm.ranks * comm.channels * 64 * K  # as many for each channel, however many ranks
    plan = schedule(comm, Collective(kind, comm.ranks, few, 4), algorithm, "simple")
    bound = busiest_s(comm, plan, load(f"{machine}:{nodes}"), algorithm)
    for protocol in PROTOCOLS:
        for nbytes in (few, 64 * few):
            seconds = closed_form(comm, Collective(kind, comm.ranks, nbytes, 4), algorithm, protocol)
            assert seconds >= bound * nbytes / few


def test_links_are_shared_by_all_that_crosses_them():
    # two rings of 10 GB/s a search channel meet between the sockets, 10 GB/s; a tree there sends both ways
    assert shares(communicator("a100-pcie4"), "ring", 2)[0] == 10e9 / 2
    assert shares(communicator("a100-pcie4", 2), "tree", 4)[0] == 10e9 / 4
    # one channel alone has a link to itself
    assert shares(communicator("dgx-h100"), "ring", 1)[0] == 370.8e9
    assert not through_port(communicator("dgx1-v100"), "tree")
    assert not through_port(communicator("dgx-h100", 1, 2), "tree")


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
    seconds, _, timeline = simulated(comm, Collective("all_reduce", 16, M, 4), "tree", "ll", traced=True)
    assert max(span.delivered for span in timeline.transfers) == pytest.approx(seconds)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_nothing_still_takes_its_latencies(algorithm, protocol):
    comm = communicator("dgx-h100", 2)
    nothing = Collective("all_reduce", 16, 0, 4)
    assert simulated(comm, nothing, algorithm, protocol)[0] > 0
    assert closed_form(comm, nothing, algorithm, protocol) > 0
