import pytest

from ringside.topologies import TopologyError, ranks, star
from ringside.topologies.fabrics import leaf_spine
from ringside.topologies.graph import check
from ringside.topologies.placement import PLACEMENTS, check_placement, interleaved, natural, place


def test_interleaving_takes_a_host_from_under_each_switch_in_turn() -> None:
    assert interleaved(leaf_spine(2, 3)) == (0, 3, 1, 4, 2, 5)
    assert interleaved(leaf_spine(3, 2)) == (0, 2, 4, 1, 3, 5)
    assert interleaved(star(4)) == natural(star(4)) == (0, 1, 2, 3)
    assert interleaved(star(1)) == (0,)


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_placement_names_every_host_once(name: str) -> None:
    for leaves in range(1, 6):
        for hosts in range(1, 6):
            graph = leaf_spine(leaves, hosts)
            assert sorted(PLACEMENTS[name](graph)) == list(range(leaves * hosts))


def test_placed_ranks_sit_on_the_hosts_that_were_named() -> None:
    graph = leaf_spine(2, 2)
    placed = place(graph, (3, 0, 2))
    assert ranks(placed) == ["gpu3", "gpu0", "gpu2"]
    assert "gpu1" not in placed
    assert placed.edges["leaf0", "spine"] == graph.edges["leaf0", "spine"]
    check(placed)
    assert ranks(graph) == ["gpu0", "gpu1", "gpu2", "gpu3"]


def test_hosts_that_do_not_exist_and_no_ranks_at_all_are_refused() -> None:
    for placement in ((0, 4), (-1,), ()):
        with pytest.raises(TopologyError, match="hosts 0 to 3"):
            check_placement(star(4), placement)
    with pytest.raises(TopologyError, match="several ranks on one host"):
        place(star(4), (0, 0))
