"""Structured fabrics: their parts, and routes that match their definitions."""

import resource
from collections import Counter
from inspect import signature
from itertools import pairwise, permutations
from math import prod

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.topologies import MAKERS, Routes, Topology, TopologyError, check, load, make, ranks
from ringside.topologies.fabrics.fabric import turn
from ringside.topologies.fabrics.refitting import FABRICS
from ringside.topologies.graph import add_cable
from tests.topologies.routes import path as way

RATE = 25e9


def kinds(graph: Topology) -> Counter[str]:
    names = (node.rstrip("0123456789.") for node, data in graph.nodes(data=True) if data["kind"] == "switch")
    return Counter(names)


def cut(graph: Topology, one: set[int]) -> float:
    """Return the bytes/s that some ranks can send to the others over any routes."""
    flow = nx.DiGraph()
    flow.add_edges_from((a, b, {"capacity": link["bandwidth"]}) for a, b, link in graph.edges(data=True))
    for rank, node in enumerate(ranks(graph)):
        flow.add_edge(*(("source", node) if rank in one else (node, "sink")))
    value, _ = nx.maximum_flow(flow, "source", "sink")
    return float(value)


@st.composite
def fabrics(draw: st.DrawFn) -> Topology:
    count = draw(st.integers(2, 40))
    match draw(st.sampled_from(["fat-tree", "rail-optimized", "torus", "dragonfly"])):
        case "torus":
            return make("torus", count, {"dimensions": draw(st.sampled_from(["2", "3"]))})
        case "dragonfly":
            sizes = {key: draw(st.integers(2, 3)) for key in ("hosts_per_router", "routers", "global_links")}
            room = (
                sizes["hosts_per_router"] * sizes["routers"] * (sizes["routers"] * sizes["global_links"] + 1)
            )
            ecmp = draw(st.sampled_from(["destination", "hash"]))
            return make("dragonfly", min(count, room), sizes | {"ecmp": ecmp})
        case name:
            values = {
                "radix": str(draw(st.sampled_from([8, 9, 16]))),
                "tiers": str(draw(st.integers(2, 3))),
                "oversubscription": draw(st.sampled_from(["1", "2", "1.5", "0.5"])),
                "ecmp": draw(st.sampled_from(["destination", "hash"])),
            }
            rails = {"rails": str(draw(st.integers(1, 4)))} if name == "rail-optimized" else {}
            # three rails of 13 hosts or more do not fit on the narrowest switches
            return make(name, min(count, 12 if rails.get("rails") == "3" else 15), values | rails)


@given(fabrics(), st.data())
@settings(max_examples=150)
def test_routes_are_shortest_walks_in_the_graph(graph: Topology, data: st.DataObject) -> None:
    count = len(ranks(graph))
    src = data.draw(st.integers(0, count - 1))
    lengths = nx.single_source_shortest_path_length(graph, ranks(graph)[src])
    for dst in range(count):
        if dst != src:
            nodes = way(graph, src, dst)
            assert nodes[0] == ranks(graph)[src]
            assert nodes[-1] == ranks(graph)[dst]
            assert all(graph.has_edge(*hop) for hop in pairwise(nodes))
            assert len(set(nodes)) == len(nodes)
            if graph.graph["name"] != "dragonfly":
                assert len(nodes) - 1 == lengths[nodes[-1]]
            else:  # minimal: one global cable at the most, one local cable on either side of it
                assert len(nodes) <= 6


@pytest.mark.parametrize("radix", [4, 6, 8])
def test_a_k_ary_fat_tree_is_al_fares(radix: int) -> None:
    half = radix // 2
    graph = make("fat-tree", radix**3 // 4, {"radix": str(radix)})
    assert kinds(graph) == {"leaf": radix * half, "spine": radix * half, "core": half**2}
    switches = [node for node, data in graph.nodes(data=True) if data["kind"] == "switch"]
    assert {graph.degree(node) for node in switches} == {2 * radix}
    with pytest.raises(TopologyError, match=f"have {radix**3 // 4} ports"):
        make("fat-tree", radix**3 // 4 + 1, {"radix": str(radix)})


@pytest.mark.parametrize(("oversubscription", "ratio"), [("1", 1), ("3", 3), ("1,3", 3), ("3,3", 9)])
def test_half_of_a_fat_tree_sends_to_the_other_what_the_oversubscription_leaves(
    oversubscription: str, ratio: float
) -> None:
    values = {"radix": "4", "oversubscription": oversubscription}
    down, up = ([3, 1] if text == "3" else [2, 2] for text in (oversubscription + ",1").split(",")[:2])
    ports = down[0] * up[0] * 4
    graph = make("fat-tree", ports, values)
    assert cut(graph, set(range(ports // 2))) == pytest.approx(ports / 2 * RATE / ratio)


@pytest.mark.parametrize(("shape", "cables"), [("4x4", 2 * 4), ("4x6", 2 * 4), ("4x4x4", 2 * 16), ("2x2", 2)])
def test_half_of_a_torus_sends_what_the_cables_across_the_middle_carry(shape: str, cables: int) -> None:
    sides = [int(side) for side in shape.split("x")]
    longest = sides.index(max(sides))
    graph = make("torus", prod(sides), {"shape": shape})
    half = {
        rank
        for rank, node in enumerate(ranks(graph))
        if int(next(iter(graph.adj[node])).removeprefix("router").split(".")[longest]) < sides[longest] // 2
    }
    assert cut(graph, half) == pytest.approx(cables * RATE)


def test_half_of_the_groups_of_a_dragonfly_send_what_the_cables_between_them_carry() -> None:
    sizes = {"hosts_per_router": 2, "routers": 3, "global_links": 1}
    graph = make("dragonfly", 24, sizes)  # 4 groups of 6, one cable between any two
    assert kinds(graph) == {"router": 12}
    assert cut(graph, set(range(12))) == pytest.approx(4 * RATE)


def test_the_balanced_dragonfly_of_the_paper_has_1056_ranks_in_33_groups() -> None:
    graph = make("dragonfly", 1056)
    assert kinds(graph) == {"router": 264}
    with pytest.raises(TopologyError, match="make 34 groups of 32; allowed: 33"):
        make("dragonfly", 1057)


def test_a_shift_by_destination_loads_no_uplink_of_a_full_tree_twice() -> None:
    graph = make("fat-tree", 128, {"radix": "8"})
    routes = Routes(graph)
    for shift in (1, 3, 4, 16, 31, 64, 100):
        load = Counter(hop for rank in range(128) for hop in routes.route(rank, (rank + shift) % 128))
        assert max(load.values()) == 1


@pytest.mark.parametrize("ecmp", ["destination", "hash"])
def test_equal_ways_are_shared_out_over_all_pairs(ecmp: str) -> None:
    graph = make("fat-tree", 54, {"radix": "6", "ecmp": ecmp})
    routes = Routes(graph)
    load = Counter(hop for pair in permutations(range(54), 2) for hop in routes.route(*pair))
    for below, above in (("leaf", "spine"), ("spine", "core"), ("core", "spine"), ("spine", "leaf")):
        found = [n for (a, b), n in load.items() if a.startswith(below) and b.startswith(above)]
        assert len(found) == 54  # every cable is used
        assert max(found) <= (1.05 if ecmp == "destination" else 1.5) * sum(found) / len(found)


@given(st.integers(0, 2**20), st.integers(0, 2**20))
def test_a_hash_is_the_same_every_time_and_of_64_bits(src: int, dst: int) -> None:
    assert turn("hash", src, dst) == turn("hash", src, dst) < 2**64


def test_a_rail_has_one_leaf_in_a_unit_and_messages_change_rails_inside_the_sender() -> None:
    graph = load("dgx-h100:64", {"fabric": "rail_optimized"})
    assert kinds(graph) == {"leaf": 16, "spine": 32}
    assert way(graph, 3, 8 + 3)[4:-3] == []  # same rail, same unit: by one leaf
    assert way(graph, 3, 8 + 3) == [
        *("node0/gpu3", "node0/pcie3", "node0/nic3", "leaf3", "node1/nic3", "node1/pcie3", "node1/gpu3")
    ]
    assert way(graph, 0, 8 + 3)[:5] == [f"node0/{at}" for at in ("gpu0", "nvswitch", "gpu3", "pcie3", "nic3")]
    assert [node for node in way(graph, 0, 63 * 8) if "/" not in node] == ["leaf0", "spine0.31", "leaf8"]


def test_rails_of_one_tier_are_joined_by_nvlink_alone() -> None:
    graph = load("dgx-h100:4", {"fabric": "rail_optimized", "tiers": "1"})
    assert kinds(graph) == {"leaf": 8}
    assert "node0/gpu5" in way(graph, 0, 8 + 5)
    rails = load("dgx-h100:4")
    for dst in range(1, 32):
        assert len(way(graph, 0, dst)) == len(way(rails, 0, dst))


@pytest.mark.parametrize("name", [name for name in MAKERS if "nodes" in signature(MAKERS[name]).parameters])
@pytest.mark.parametrize("fabric", FABRICS)
def test_every_machine_can_be_joined_by_every_fabric(name: str, fabric: str) -> None:
    graph = load(f"{name}:5", {"fabric": fabric} | ({"tiers": "3"} if "rail" in fabric else {}))
    check(graph)
    count = len(ranks(graph))
    routes = Routes(graph)
    for dst in {1, count // 2, count - 1}:
        hops = routes.route(0, dst)
        assert all(graph.has_edge(*hop) for hop in hops)
        assert [a for a, _ in hops[1:]] == [b for _, b in hops[:-1]]
        assert (hops[0][0], hops[-1][1]) == (ranks(graph)[0], ranks(graph)[dst])


def test_a_graph_that_was_changed_gets_the_ways_that_are_left() -> None:
    graph = make("fat-tree", 16, {"radix": "4"})
    before = way(graph, 0, 15)
    graph.remove_edge(before[2], before[3])
    after = way(graph, 0, 15)
    assert all(graph.has_edge(*hop) for hop in pairwise(after))
    assert len(after) == len(before)


@pytest.mark.parametrize("cluster", ["fat-tree:8", "dgx-h100:2"])
def test_a_rank_that_was_added_by_hand_is_reached(cluster: str) -> None:
    graph = load(cluster, {} if "fat" in cluster else {"fabric": "fat_tree"})
    count = len(ranks(graph))
    graph.add_node("new", kind="gpu", rank=count, tier=0)
    add_cable(graph, "new", "leaf0", kind="ethernet", bandwidth=RATE, latency=1e-6)
    assert way(graph, count, 0)[:2] == ["new", "leaf0"]
    renamed = nx.relabel_nodes(graph, {node: f"x{node}" for node in graph})
    assert way(renamed, 0, count)[-2:] == ["xleaf0", "xnew"]


def test_more_tiers_than_there_may_be_are_not_advised() -> None:
    with pytest.raises(TopologyError, match=r"but 17 are needed; write a larger radix$"):
        load("fat-tree:17", {"radix": "4"})


def test_routes_of_a_big_fabric_are_computed_when_asked_and_not_kept() -> None:
    graph = make("fat-tree", 20_000)
    routes = Routes(graph)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for rank in range(20_000):
        assert len(routes.route(rank, (rank + 7919) % 20_000)) in (4, 6)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
