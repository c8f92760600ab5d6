import time
from itertools import pairwise

import networkx as nx
import pytest

from ringside.topologies import Routes, Topology, TopologyError, check, dgx_a100, dgx_h100, star
from ringside.topologies.fabrics import leaf_spine
from ringside.topologies.graph import add_cable


def path(graph: Topology, src: int, dst: int) -> list[str]:
    hops = Routes(graph).route(src, dst)
    assert all(first[1] == second[0] for first, second in pairwise(hops))
    assert all(graph.has_edge(*hop) for hop in hops)
    return [hops[0][0], *(b for _, b in hops)]


def tiered(**tiers: int) -> Topology:
    graph: Topology = nx.DiGraph(name="tiered")
    for rank, node in enumerate(node for node, tier in tiers.items() if not tier):
        graph.add_node(node, kind="gpu", rank=rank, tier=0)
    for node, tier in tiers.items():
        if tier:
            graph.add_node(node, kind="switch", tier=tier)
    return graph


def join(graph: Topology, *cables: tuple[str, str, float]) -> Topology:
    for a, b, bandwidth in cables:
        add_cable(graph, a, b, kind="ib", bandwidth=bandwidth, latency=1e-6)
    check(graph)
    return graph


def test_a_route_climbs_no_higher_than_it_must() -> None:
    graph = leaf_spine(3, 4)
    assert path(graph, 0, 3) == ["gpu0", "leaf0", "gpu3"]
    assert path(graph, 0, 11) == ["gpu0", "leaf0", "spine", "leaf2", "gpu11"]


def test_within_a_machine_a_message_stays_on_nvlink() -> None:
    for graph in (dgx_a100(), dgx_h100(2), dgx_a100(2)):
        for dst in range(1, 8):
            assert path(graph, 0, dst) == ["node0/gpu0", "node0/nvswitch", f"node0/gpu{dst}"]


def test_between_machines_the_same_gpu_is_reached_on_its_own_rail() -> None:
    for gpu in range(8):
        assert f"rail{gpu}" in path(dgx_h100(3), gpu, 16 + gpu)
        assert {f"rail{gpu}", f"rail{gpu ^ 1}"} & set(path(dgx_a100(3), gpu, 16 + gpu))
    own_rail = "node0/gpu3 node0/pcie3 node0/nic3 rail3 node2/nic3 node2/pcie3 node2/gpu3"
    assert path(dgx_h100(3), 3, 19) == own_rail.split()


def test_another_rail_is_reached_through_the_peer_that_sits_on_it() -> None:
    by_the_peer = "node0/gpu0 node0/nvswitch node0/gpu5 node0/pcie5 node0/nic5 rail5"
    assert path(dgx_h100(2), 0, 13) == [*by_the_peer.split(), "node1/nic5", "node1/pcie5", "node1/gpu5"]


def test_two_gpus_of_an_a100_slot_send_through_two_cards() -> None:
    graph = dgx_a100(2)
    for pair in range(0, 8, 2):
        cards = {path(graph, pair + place, 8 + pair + place)[2] for place in (0, 1)}
        assert cards == {f"node0/nic{pair}", f"node0/nic{pair + 1}"}


def test_an_a100_reaches_its_slot_mates_rail_without_a_peer() -> None:
    route = path(dgx_a100(2), 0, 9)
    assert "node0/nvswitch" not in route
    assert len(route) == 7


def test_no_message_crosses_a_machine_that_it_neither_leaves_nor_reaches() -> None:
    for graph in (dgx_h100(3), dgx_a100(3)):
        for src in range(0, 24, 5):
            for dst in range(24):
                if src != dst:
                    nodes = {node.split("/")[0] for node in path(graph, src, dst) if "/" in node}
                    assert nodes == {f"node{src // 8}", f"node{dst // 8}"}


def test_of_equally_long_ways_the_widest_is_taken() -> None:
    graph = join(
        tiered(a=0, b=0, narrow=1, wide=1),
        ("a", "narrow", 1e9),
        ("b", "narrow", 1e9),
        ("a", "wide", 2e9),
        ("b", "wide", 2e9),
    )
    assert path(graph, 0, 1) == ["a", "wide", "b"]


def test_equal_ways_are_shared_by_the_senders() -> None:
    hosts = {f"g{rank}": 0 for rank in range(4)}
    graph = tiered(**hosts, left=1, right=1, s0=2, s1=2)
    join(
        graph,
        *((f"g{rank}", "left" if rank < 2 else "right", 1e9) for rank in range(4)),
        *((leaf, spine, 1e9) for leaf in ("left", "right") for spine in ("s0", "s1")),
    )
    assert {path(graph, src, 2)[2] for src in (0, 1)} == {"s0", "s1"}
    assert {path(graph, src, 0)[2] for src in (2, 3)} == {"s0", "s1"}


def test_ranks_at_different_heights_meet() -> None:
    graph = join(
        tiered(a=0, b=0, leaf=1, core=2), ("a", "leaf", 1e9), ("leaf", "core", 1e9), ("b", "core", 1e9)
    )
    assert path(graph, 0, 1) == ["a", "leaf", "core", "b"]
    assert path(graph, 1, 0) == ["b", "core", "leaf", "a"]


def test_without_tiers_the_fewest_hops_are_taken() -> None:
    graph: Topology = nx.DiGraph(name="line")
    for rank in range(4):
        graph.add_node(f"g{rank}", kind="gpu", rank=rank)
    for a, b in pairwise(range(4)):
        add_cable(graph, f"g{a}", f"g{b}", kind="ethernet", bandwidth=1e9, latency=0)
    check(graph)
    assert path(graph, 0, 3) == ["g0", "g1", "g2", "g3"]
    add_cable(graph, "g3", "g0", kind="ethernet", bandwidth=1e3, latency=1)
    assert path(graph, 0, 3) == ["g0", "g3"]


def test_a_one_way_link_is_used_one_way_only() -> None:
    graph: Topology = nx.DiGraph(name="circle")
    for rank in range(3):
        graph.add_node(f"g{rank}", kind="gpu", rank=rank)
        graph.add_edge(f"g{rank}", f"g{(rank + 1) % 3}", kind="ib", bandwidth=1e9, latency=0.0)
    check(graph)
    assert path(graph, 1, 0) == ["g1", "g2", "g0"]


def test_one_way_links_between_tiers_are_climbed_one_way_only() -> None:
    graph = tiered(a=0, b=0, up=1, both=2)
    graph.add_edge("a", "up", kind="ib", bandwidth=9e9, latency=0.0)
    graph.add_edge("up", "both", kind="ib", bandwidth=9e9, latency=0.0)
    join(graph, ("a", "both", 1e9), ("b", "both", 1e9))
    assert path(graph, 1, 0) == ["b", "both", "a"]


def test_where_there_is_no_way_the_ends_are_named() -> None:
    graph = star(3)
    graph.remove_edge("switch", "gpu2")
    with pytest.raises(TopologyError, match="no path from 'gpu0' to 'gpu2'"):
        Routes(graph).route(0, 2)


@pytest.mark.slow
def test_many_machines_are_built_and_routed_in_seconds() -> None:
    begin = time.process_time()
    graph = dgx_h100(512)
    routes = Routes(graph)
    for rank in range(0, 4096, 8):
        routes.route(rank, (rank + 8) % 4096)
        routes.route(rank, (rank + 13) % 4096)
    assert time.process_time() - begin < 10
