import sys

import networkx as nx
import pytest

from ringside.real.emulate import available, emulate
from ringside.real.emulate.plan import plan
from ringside.topologies import nvlink_switch, star
from ringside.topologies.fabrics import leaf_spine
from ringside.topologies.graph import TopologyError, add_cable

RATE = 12.5e6


def test_every_end_of_a_cable_sends_at_its_own_edge_s_rate() -> None:
    graph = star(3, bandwidth=RATE)
    graph.edges["gpu1", "switch"]["bandwidth"] = RATE / 2
    graph.edges["switch", "gpu2"]["bandwidth"] = RATE / 4
    rates = {
        (near.node, far.node): near.rate for a, b in plan(graph).cables for near, far in ((a, b), (b, a))
    }
    assert rates == {edge: graph.edges[edge]["bandwidth"] for edge in graph.edges}


def test_interfaces_are_unique_where_they_meet_and_short_enough_for_the_kernel() -> None:
    layout = plan(leaf_spine(8, 32, bandwidth=RATE, oversubscription=4))
    fabric = [port.interface for cable in layout.cables for port in cable if port.node in layout.bridges]
    names = [*fabric, *layout.bridges.values()]
    assert len(set(names)) == len(names) == 8 * 32 + 2 * 8 + 9
    assert max(map(len, names)) <= 15


def test_two_hosts_need_no_switch() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph(name="pair")
    for rank, node in enumerate("ab"):
        graph.add_node(node, kind="gpu", rank=rank)
    add_cable(graph, "a", "b", kind="ethernet", bandwidth=RATE, latency=0)
    assert len(plan(graph).cables) == 1
    assert not plan(graph).bridges


def looped() -> "nx.DiGraph[str]":
    graph = leaf_spine(3, 1, bandwidth=RATE)
    add_cable(graph, "leaf0", "leaf1", kind="ethernet", bandwidth=RATE, latency=0)
    return graph


def two_ports() -> "nx.DiGraph[str]":
    graph = star(2, bandwidth=RATE)
    add_cable(graph, "gpu0", "gpu1", kind="ethernet", bandwidth=RATE, latency=0)
    return graph


def one_way() -> "nx.DiGraph[str]":
    graph = leaf_spine(2, 1, bandwidth=RATE)
    graph.add_edge("leaf0", "leaf1", kind="ethernet", bandwidth=RATE, latency=0.0)
    return graph


@pytest.mark.parametrize(
    ("graph", "complaint"),
    [
        (star(2), "'gpu0' -> 'switch' has 25 GB/s.*100Mb/s"),
        (star(2, bandwidth=1e3), "has 1 kB/s"),
        (star(300, bandwidth=RATE), "300 ranks"),
        (nvlink_switch(2, bandwidth=RATE), "'nvswitch' is of kind 'nvswitch'"),
        (looped(), "loop"),
        (two_ports(), "'gpu0' has 2 cables"),
        (one_way(), "'leaf0' -> 'leaf1' has no reverse link"),
    ],
)
def test_a_graph_that_cannot_be_emulated_is_refused_by_name(graph: "nx.DiGraph[str]", complaint: str) -> None:
    with pytest.raises(TopologyError, match=complaint):
        plan(graph)


def test_all_complaints_come_at_once() -> None:
    with pytest.raises(TopologyError) as error:
        plan(nvlink_switch(2))
    assert len(str(error.value).splitlines()) == 5


def test_another_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert available() == "network namespaces need Linux, this is darwin"
    with pytest.raises(ValueError, match="darwin"), emulate(star(2, bandwidth=RATE)):
        pass


def test_a_missing_pyroute2_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setitem(sys.modules, "pyroute2", None)
    reason = available()
    assert reason is not None
    assert "'.[net]'" in reason
