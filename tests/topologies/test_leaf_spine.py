from itertools import pairwise

import pytest

from ringside.topologies import Routes, TopologyError, make
from ringside.topologies.catalogue import settings
from ringside.topologies.fabrics import leaf_spine


def test_hosts_of_a_leaf_are_neighbouring_ranks() -> None:
    routes = Routes(leaf_spine(3, 2))
    assert routes.route(2, 3) == (("gpu2", "leaf1"), ("leaf1", "gpu3"))
    assert routes.route(0, 5) == tuple(pairwise("gpu0 leaf0 spine leaf2 gpu5".split()))


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_an_uplink_has_its_hosts_bandwidth_over_the_oversubscription(oversubscription: float) -> None:
    graph = make("leaf-spine", 2, {"bandwidth": "100Mb/s", "oversubscription": str(oversubscription)})
    for link in (("leaf1", "spine"), ("spine", "leaf1")):
        assert graph.edges[link]["bandwidth"] == 4 * 12.5e6 / oversubscription
    assert graph.edges["gpu7", "leaf1"]["bandwidth"] == 12.5e6


def test_a_message_pays_the_latency_once_per_two_links() -> None:
    graph = leaf_spine(2, 2, latency=4e-6)
    hops = Routes(graph).route(0, 3)
    assert sum(graph.edges[hop]["latency"] for hop in hops) == pytest.approx(8e-6)


def test_its_settings_read_as_they_are_written() -> None:
    assert settings("leaf-spine") == {
        "hosts_per_leaf": "4",
        "bandwidth": "25 GB/s",
        "latency": "5 us",
        "oversubscription": "1",
    }


@pytest.mark.parametrize(
    "setting", ["oversubscription=0", "oversubscription=-1", "hosts_per_leaf=0", "hosts_per_leaf=1e9"]
)
def test_impossible_settings_are_refused(setting: str) -> None:
    name, value = setting.split("=")
    with pytest.raises(TopologyError, match=name):
        make("leaf-spine", 2, {name: value})
