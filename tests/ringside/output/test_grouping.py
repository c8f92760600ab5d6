"""A large fabric is drawn by groups of nodes that are joined alike."""

from collections import Counter

import pytest

from ringside import load
from ringside.pictures.grouping import grouped, tier_of

MOST = 18


@pytest.mark.parametrize("cluster", ["fat-tree:512", "leaf-spine:64"])
def test_no_tier_is_wider_than_a_page_and_no_node_is_lost(cluster):
    graph = load(cluster)
    small = grouped(graph, MOST)
    assert max(Counter(tier_of(small, node) for node in small).values()) <= MOST
    assert sum(data["count"] for _, data in small.nodes(data=True)) == len(graph)
    assert sum(data["cables"] for *_, data in small.edges(data=True)) == graph.number_of_edges()


def test_a_fat_trees_pods_stay_apart():
    small = grouped(load("fat-tree:512", {"radix": "16"}), MOST)
    ranks = [data["count"] for _, data in small.nodes(data=True) if data["kind"] == "gpu"]
    assert ranks == [64] * 8


def test_a_small_fabric_is_as_it_is():
    graph = load("fat-tree:16", {"radix": "4"})
    assert set(grouped(graph, MOST)) == set(graph)
