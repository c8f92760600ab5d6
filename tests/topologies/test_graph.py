import math

import networkx as nx
import pytest

from ringside.topologies import Topology, TopologyError, check, num_machines, ranks, star
from ringside.topologies.graph import add_cable


def pair(rank: object = 0) -> Topology:
    graph: Topology = nx.DiGraph(name="pair")
    graph.add_node("a", kind="gpu", rank=rank)
    graph.add_node("b", kind="gpu", rank=1)
    add_cable(graph, "a", "b", kind="pcie", bandwidth=1e9, latency=0)
    return graph


def complaints(graph: Topology) -> list[str]:
    with pytest.raises(TopologyError) as refusal:
        check(graph)
    return str(refusal.value).splitlines()


def test_every_violation_is_named_at_once() -> None:
    graph: Topology = nx.DiGraph(name="broken")
    graph.add_node("a", kind="gpu", rank=0)
    graph.add_node("b", kind="gpu", rank=0)
    graph.add_node("c", kind="gpu", rank=7)
    graph.add_node("d", kind="gpu")
    graph.add_node("e", kind="toaster")
    graph.add_node("f")
    graph.add_edge("a", "b", kind="string", bandwidth=1e9, latency=0.0)
    graph.add_edge("b", "a", kind="pcie", bandwidth=0, latency=0.0)
    graph.add_edge("a", "c", kind="pcie", bandwidth=1e9, latency=-1e-6)
    graph.add_edge("a", "d", kind="pcie", latency=0.0)
    graph.add_edge("a", "a", kind="pcie", bandwidth=1e9, latency=0.0)
    assert complaints(graph) == [
        "broken: node 'e' has kind 'toaster'; allowed: gpu, nvswitch, pcie, cpu, nic, switch",
        "broken: node 'f' has kind None; allowed: gpu, nvswitch, pcie, cpu, nic, switch",
        "broken: gpus 'a' and 'b' both have rank 0",
        "broken: gpu 'c' has rank 7; allowed: 0 to 3",
        "broken: gpu 'd' has rank None; allowed: 0 to 3",
        "broken: link 'a' -> 'b' has kind 'string'; "
        "allowed: nvlink, xgmi, pcie, ib, ethernet, c2c, upi, memory",
        "broken: link 'a' -> 'c' has latency -1e-06; write seconds from 0 to 1e+09",
        "broken: link 'a' -> 'd' has bandwidth None; write bytes/s from 1e-06 to 1e+18",
        "broken: link 'a' -> 'a' joins a node to itself",
        "broken: link 'b' -> 'a' has bandwidth 0; write bytes/s from 1e-06 to 1e+18",
    ]


@pytest.mark.parametrize("key", ["bandwidth", "latency"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, "25GB/s", None, True])
def test_a_figure_that_is_none_is_refused(key: str, value: object) -> None:
    graph = star(2)
    graph.edges["gpu0", "switch"][key] = value
    assert complaints(graph) == [line for line in complaints(graph) if f"has {key} {value!r}" in line]


@pytest.mark.parametrize("rank", [True, 0.0, "0", None, -1, 2, [0], {}])
def test_a_rank_that_is_none_is_refused_and_blames_nobody_else(rank: object) -> None:
    assert complaints(pair(rank)) == [f"pair: gpu 'a' has rank {rank!r}; allowed: 0 to 1"]


def test_ranks_that_no_message_reaches_are_named_with_the_way_that_is_missing() -> None:
    graph = star(4)
    graph.remove_edge("switch", "gpu2")
    graph.remove_edge("gpu3", "switch")
    assert complaints(graph) == [
        "star: no path to gpu 'gpu2' from gpu 'gpu0'",
        "star: no path from gpu 'gpu3' to gpu 'gpu0'",
    ]


def test_a_topology_without_ranks_is_refused() -> None:
    graph: Topology = nx.DiGraph(name="empty")
    graph.add_node("s", kind="switch")
    assert complaints(graph) == ["empty: no node of kind 'gpu', so there is no rank"]


@pytest.mark.parametrize("kind", [nx.Graph, nx.MultiDiGraph])
def test_only_a_directed_graph_of_single_links_is_a_topology(kind: type) -> None:
    graph = kind(pair())
    with pytest.raises(TopologyError):
        check(graph)


def test_a_count_of_machines_that_is_none_is_refused() -> None:
    graph = pair()
    graph.graph["nodes"] = -3
    with pytest.raises(TopologyError):
        check(graph)


def test_a_good_graph_needs_neither_name_nor_machines_nor_tiers() -> None:
    graph = pair()
    graph.graph.clear()
    check(graph)
    assert ranks(graph) == ["a", "b"]
    assert num_machines(graph) == 1


def test_ranks_are_in_order_whatever_the_order_of_the_nodes() -> None:
    graph = nx.relabel_nodes(star(12), {"gpu0": "zero", "gpu11": "eleven"})
    assert ranks(graph) == ["zero", *(f"gpu{rank}" for rank in range(1, 11)), "eleven"]
