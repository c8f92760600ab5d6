"""Routes are a function of the graph, not of the order of its nodes and links."""

import random
from collections import Counter
from itertools import pairwise, permutations

import networkx as nx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.sim.parameters import preset_of
from ringside.sim.predict import predict
from ringside.topologies import Routes, Topology, check, make, ranks
from ringside.topologies.graph import add_cable
from ringside.topologies.placement import interleaved, natural, place
from tests.made_up import calibration

MIB = 1 << 20


def joined(kinds: dict[str, str], cables: list[tuple[str, str, float]], **tiers: int) -> Topology:
    graph: Topology = nx.DiGraph(name="joined")
    for node, kind in kinds.items():
        graph.add_node(node, kind=kind, **({"tier": tiers[node]} if tiers else {}))
    for rank, node in enumerate(node for node, kind in kinds.items() if kind == "gpu"):
        graph.nodes[node]["rank"] = rank
    for a, b, bandwidth in cables:
        add_cable(graph, a, b, kind="ethernet", bandwidth=bandwidth, latency=1e-6)
    check(graph)
    return graph


def two_spines(wide: float, narrow: float) -> tuple[dict[str, str], list[tuple[str, str, float]]]:
    kinds = {"a": "gpu", "b": "gpu", "left": "switch", "right": "switch", "s0": "switch", "s1": "switch"}
    cables = [("a", "left", 10e9), ("b", "right", 10e9)]
    return kinds, cables + [
        (leaf, spine, width) for leaf in ("left", "right") for spine, width in (("s0", narrow), ("s1", wide))
    ]


def fabric(leaves: int, hosts: int, spines: int, *, tiers: bool) -> Topology:
    kinds = {f"g{rank}": "gpu" for rank in range(leaves * hosts)}
    kinds |= {f"leaf{leaf}": "switch" for leaf in range(leaves)} | {f"s{s}": "switch" for s in range(spines)}
    cables = [(f"g{rank}", f"leaf{rank // hosts}", 1e9) for rank in range(leaves * hosts)]
    cables += [
        (f"leaf{leaf}", f"s{s}", hosts / spines * 1e9) for leaf in range(leaves) for s in range(spines)
    ]
    levels = {node: ("gl".find(node[0]), 2)[node[0] == "s"] for node in kinds}
    return joined(kinds, cables, **(levels if tiers else {}))


def torus(side: int) -> Topology:
    kinds = {f"g{x}.{y}": "gpu" for x in range(side) for y in range(side)}
    steps = [
        (x, y, (x + dx) % side, (y + 1 - dx) % side)
        for x in range(side)
        for y in range(side)
        for dx in (0, 1)
    ]
    return joined(kinds, [(f"g{x}.{y}", f"g{u}.{v}", 1e9) for x, y, u, v in steps])


def shuffled(graph: Topology, seed: int) -> Topology:
    """Return the same graph with its nodes and links in another order."""
    order = random.Random(seed)
    other: Topology = nx.DiGraph(**graph.graph)
    nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    order.shuffle(nodes)
    order.shuffle(edges)
    other.add_nodes_from((node, dict(data)) for node, data in nodes)
    other.add_edges_from((a, b, dict(data)) for a, b, data in edges)
    return other


def routes_of(graph: Topology) -> list[tuple[tuple[str, str], ...]]:
    routes = Routes(graph)
    return [routes.route(*pair) for pair in permutations(range(len(ranks(graph))), 2)]


TOPOLOGIES = {
    "dgx1": make("dgx1-v100", 1),
    "dgx1s": make("dgx1-v100", 2),
    "dgx-a100": make("dgx-a100", 2),
    "dgx-h100": make("dgx-h100", 2),
    "a100-pcie4": make("a100-pcie4", 2),
    "leaf-spine": make("leaf-spine", 3, {"oversubscription": "2"}),
    "three spines": fabric(3, 4, 3, tiers=True),
    "three spines without tiers": fabric(3, 4, 3, tiers=False),
    "two unequal spines without tiers": joined(*two_spines(10e9, 1e9)),
    "torus": torus(4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_answers_are_the_same_to_the_bit_in_whatever_order_the_graph_was_written(name: str) -> None:
    graph = TOPOLOGIES[name]
    # every rank sends to every other
    plan = schedule("direct", Collective("all_reduce", len(ranks(graph)), MIB))
    routes, time_s, order = routes_of(graph), simulate(plan, graph).time_s, interleaved(graph)
    for seed in range(50):
        other = shuffled(graph, seed)
        assert routes_of(other) == routes
        assert interleaved(other) == order
        assert preset_of(other) == preset_of(graph)
        assert simulate(plan, other).time_s == time_s


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_calibration_that_finds_the_preset_changes_nothing(name: str) -> None:
    graph = TOPOLOGIES[name]
    collective = Collective("all_reduce", len(ranks(graph)), MIB)
    same = calibration({"algorithm": "direct", "parameters": preset_of(graph)})
    plain, calibrated = (
        predict(collective, graph, library="ideal", algorithm="direct", calibration=given)
        for given in (None, same)
    )
    assert calibrated.time_s == plain.time_s


def test_without_tiers_the_wide_spine_is_taken_in_all_720_orders_of_the_cables() -> None:
    kinds, cables = two_spines(10e9, 1e9)
    found = {Routes(joined(kinds, list(order))).route(0, 1) for order in permutations(cables)}
    assert found == {(("a", "left"), ("left", "s1"), ("s1", "right"), ("right", "b"))}
    plan = schedule("ring", Collective("all_reduce", 2, 64 * MIB))
    assert simulate(plan, joined(kinds, cables)).time_s == pytest.approx(64 * MIB / 10e9 + 8e-6, rel=1e-6)


@pytest.mark.parametrize("tiers", [True, False])
def test_noise_on_bandwidths_moves_no_route(tiers: bool) -> None:
    graph = fabric(3, 4, 3, tiers=tiers)
    routes, noise = routes_of(graph), random.Random(1)
    for _ in range(20):
        for _, _, link in graph.edges(data=True):
            link["bandwidth"] *= 1 + noise.uniform(-1e-9, 1e-9)
        assert routes_of(graph) == routes


@pytest.mark.parametrize("tiers", [True, False])
@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize("spines", [2, 3, 4])
def test_equal_ways_are_shared_out_evenly(spines: int, placed: bool, tiers: bool) -> None:
    graph = fabric(4, 12, spines, tiers=tiers)
    graph = place(graph, interleaved(graph)) if placed else graph
    count, routes = len(ranks(graph)), Routes(graph)

    def used(pairs: list[tuple[int, int]]) -> list[int]:
        taken = Counter(hop for src, dst in pairs for hop in routes.route(src, dst) if hop[1][0] == "s")
        by_spine = Counter(spine for (_, spine), times in taken.items() for _ in range(times))
        return [by_spine[f"s{spine}"] for spine in range(spines)]

    everybody = used(list(permutations(range(count), 2)))
    assert max(everybody) <= 1.05 * min(everybody)
    for rank in range(count):
        for pairs in ([(rank, other) for other in range(count)], [(other, rank) for other in range(count)]):
            found = used([(src, dst) for src, dst in pairs if src != dst])
            assert max(found) <= 1.4 * sum(found) / spines


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize(("leaves", "hosts", "spines"), [(2, 2, 2), (4, 4, 4), (4, 8, 2), (8, 4, 2)])
def test_several_spines_serve_a_collective_as_well_as_one_that_is_as_wide(
    leaves: int, hosts: int, spines: int, placed: bool
) -> None:
    for algorithm, most in (("ring", 1.01), ("halving_doubling", 1.01), ("direct", 1.15)):
        plan = schedule(algorithm, Collective("all_reduce", leaves * hosts, 4 * MIB))
        several, one = (
            simulate(plan, place(graph, interleaved(graph) if placed else natural(graph))).time_s
            for graph in (fabric(leaves, hosts, count, tiers=True) for count in (spines, 1))
        )
        assert several <= most * one


def test_ways_without_number_are_not_counted() -> None:
    stages = 100
    switches = [f"{side}{stage:03}" for stage in range(stages) for side in "lr"]
    kinds = {"a": "gpu", "b": "gpu"} | dict.fromkeys(switches, "switch")
    cables = [(x + f"{s:03}", y + f"{s + 1:03}", 1e9) for s in range(stages - 1) for x in "lr" for y in "lr"]
    ends = [("a", side + "000", 1e9) for side in "lr"]
    last = [("b", f"{side}{stages - 1:03}", 1e9) for side in "lr"]
    tower = {"a": 0, "b": 0} | {switch: 1 + int(switch[1:]) for switch in switches}
    assert len(Routes(joined(kinds, cables + ends + last)).route(0, 1)) == stages + 1
    assert len(Routes(joined(kinds, cables + ends + last, **tower)).route(0, 1)) == stages + 1
    both_below = [*ends, *(("b", side + "000", 1e9) for side in "lr")]
    assert len(Routes(joined(kinds, cables + both_below, **tower)).route(1, 0)) == 2


@pytest.mark.parametrize("tiers", [True, False])
def test_a_thousand_hops_are_no_matter(tiers: bool) -> None:
    half = 550
    left, right = ([f"{side}{height:03}" for height in range(half)] for side in "lr")
    kinds = {"a": "gpu", "b": "gpu"} | dict.fromkeys([*left, *right], "switch")
    line = ["a", *left, *reversed(right), "b"]
    levels = {"a": 0, "b": 0} | {node: 1 + int(node[1:]) for node in [*left, *right]}
    graph = joined(kinds, [(a, b, 1e9) for a, b in pairwise(line)], **(levels if tiers else {}))
    for link in graph.edges.values():
        link["latency"] = 0.0
    assert Routes(graph).route(0, 1) == tuple(pairwise(line))


widths = st.sampled_from([1e9, 1e9 * (1 - 1e-9), 2e9, 4e9])


@st.composite
def networks(draw: st.DrawFn, *, tiers: bool) -> Topology:
    """Draw a few hosts and switches with random links, independent per direction."""
    hosts, switches = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    graph: Topology = nx.DiGraph(name="random")
    for rank in range(hosts):
        graph.add_node(f"g{rank}", kind="gpu", rank=rank, **({"tier": 0} if tiers else {}))
    for switch in range(switches):
        height = {"tier": draw(st.integers(1, 3))} if tiers else {}
        graph.add_node(f"s{switch}", kind="switch", **height)
    nodes = list(graph)
    for a, b in permutations(nodes, 2):
        between_hosts = tiers and a[0] == b[0] == "g"
        if not between_hosts and draw(st.booleans()):
            graph.add_edge(a, b, kind="ib", bandwidth=draw(widths), latency=0.0)
    return graph


def is_up_and_down(graph: Topology, way: list[str]) -> bool:
    tiers = [graph.nodes[node]["tier"] for node in way]
    signs = [(after > before) - (after < before) for before, after in pairwise(tiers)]
    return signs == sorted(signs, reverse=True) and signs.count(0) <= 1


def check_best(graph: Topology, ways: list[list[str]]) -> None:
    """Check that rank 0 reaches rank 1 by one of the best of these paths."""

    def width(way: list[str]) -> float:
        return min(float(graph.edges[hop]["bandwidth"]) for hop in pairwise(way))

    fewest = min(map(len, ways))
    widest = max(width(way) for way in ways if len(way) == fewest)
    hops = Routes(graph).route(0, 1)
    taken = [hops[0][0], *(node for _, node in hops)]
    assert taken in ways
    assert len(taken) == fewest
    assert width(taken) >= widest * (1 - 1e-3)


@given(networks(tiers=False))
@settings(max_examples=200)
def test_without_tiers_the_route_is_one_of_the_widest_of_the_shortest(graph: Topology) -> None:
    assume(nx.has_path(graph, "g0", "g1"))
    check_best(graph, list(nx.all_shortest_paths(graph, "g0", "g1")))


@given(networks(tiers=True))
@settings(max_examples=200)
def test_with_tiers_the_route_is_one_of_the_widest_of_the_shortest_up_and_down(graph: Topology) -> None:
    ways = [way for way in nx.all_simple_paths(graph, "g0", "g1") if is_up_and_down(graph, way)]
    assume(ways)
    check_best(graph, ways)
