import inspect
from collections.abc import Callable

import pytest

from ringside.topologies import (
    MAKERS,
    Topology,
    TopologyError,
    check,
    load,
    make,
    nvlink_switch,
    parse_settings,
    ranks,
    star,
)
from ringside.topologies.catalogue import MAX_LINKS, settings
from tests.topologies.routes import latency


@pytest.mark.parametrize("count", [1, 2, 3, 64])
@pytest.mark.parametrize("maker", [star, nvlink_switch])
def test_every_rank_has_one_full_duplex_port_into_one_switch(
    maker: Callable[..., Topology], count: int
) -> None:
    graph = maker(count, bandwidth=7e9, latency=4e-6)
    check(graph)
    assert len(ranks(graph)) == count
    assert graph.number_of_nodes() == count + 1
    assert graph.number_of_edges() == 2 * count
    assert {data["bandwidth"] for *_, data in graph.edges(data=True)} == {7e9}
    if count > 1:
        assert latency(graph, 0, count - 1) == pytest.approx(4e-6)


@pytest.mark.parametrize("name", MAKERS)
def test_every_named_topology_keeps_the_contract_at_several_counts(name: str) -> None:
    for count in (1, 2, 3):
        graph = make(name, count)
        check(graph)
        assert graph.graph["name"] == name


@pytest.mark.parametrize("name", MAKERS)
def test_the_settings_shown_make_the_default_topology(name: str) -> None:
    shown, default = make(name, 2, settings(name)), make(name, 2)
    assert dict(shown.edges) == dict(default.edges)
    assert dict(shown.nodes) == dict(default.nodes)


def test_text_with_units_makes_the_same_topology_as_numbers_in_python() -> None:
    text = make("star", 64, {"bandwidth": "25GB/s", "latency": "5us"})
    number = star(64, bandwidth=25e9, latency=5e-6)
    assert dict(text.edges) == dict(number.edges)


def test_a_number_without_its_unit_is_refused() -> None:
    with pytest.raises(TopologyError, match="not a rate"):
        make("star", 64, {"bandwidth": 25e9})


@pytest.mark.parametrize(
    ("cluster", "values", "said"),
    [
        ("star:-1", {}, ["'-1' is not a count; write for example star:4"]),
        ("star:four", {}, ["'four' is not a count"]),
        (f"star:{MAX_LINKS // 2 + 1}", {}, [f"allowed: 1 to {MAX_LINKS // 2}"]),
        ("leaf-spine:1000", {"hosts_per_leaf": "1024"}, ["allowed: 1 to 255"]),
        ("star:4", {"bandwidth": "400G"}, ["star: bandwidth:", "400Gb/s or 50GB/s"]),
        ("star:4", {"bandwith": "25GB/s"}, ["bandwith: is not known; allowed: ranks, bandwidth, latency"]),
        (
            "star:4",
            {"bandwidth": "0GB/s", "latency": "5", "color": "red"},
            ["star: bandwidth:", "star: latency:", "star: color:"],
        ),
        ("nowhere.yaml", {"latency": "5us"}, ["no such file"]),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_with_every_complaint(
    cluster: str, values: dict[str, str], said: list[str]
) -> None:
    with pytest.raises(TopologyError) as refusal:
        load(cluster, values)
    for part in said:
        assert part in str(refusal.value)


@pytest.mark.parametrize("text", ["bandwidth", "=25GB/s", "bandwidth=", "", "="])
def test_a_setting_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(TopologyError, match="is not a setting; write for example bandwidth=25GB/s"):
        parse_settings(["latency=5us", text])


def test_settings_are_read_in_pairs_and_the_value_may_hold_a_sign() -> None:
    assert parse_settings(["latency=5us", "a=b=c"]) == {"latency": "5us", "a": "b=c"}


@pytest.mark.parametrize("name", MAKERS)
def test_every_maker_is_called_by_its_count_first(name: str) -> None:
    first = next(iter(inspect.signature(MAKERS[name]).parameters))
    assert first in ("ranks", "nodes", "leaves")


def test_a_shape_beside_other_dimensions_is_refused() -> None:
    with pytest.raises(TopologyError, match="shape 8x8 does not have 3 dimensions; remove one of them"):
        make("torus", 64, {"shape": "8x8", "dimensions": "3"})
    assert make("torus", 64, {"shape": "4x4x4", "dimensions": "3"}).number_of_nodes() == 128


def test_a_word_that_neither_machine_nor_fabric_knows_is_refused_with_both_ones_words() -> None:
    with pytest.raises(TopologyError, match=r"radix: is not known; allowed: nodes, .*, dimensions, shape"):
        make("dgx-h100", 8, {"fabric": "torus", "radix": "16"})
