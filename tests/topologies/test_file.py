import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import networkx as nx
import pytest

import ringside.topologies.file
from ringside.topologies import MAKERS, Routes, Topology, TopologyError, load, make, num_machines
from ringside.topologies.file import dumps, loads, read, write

Refusal = Callable[[str], list[str]]

TWO_HOSTS = """
name: two hosts
nodes:
  a: {kind: gpu, rank: 0, tier: 0}
  b: {kind: gpu, rank: 1, tier: 0}
  leaf: {kind: switch, tier: 1}
cables:
  - {ends: [a, leaf], kind: ethernet, bandwidth: 25GB/s, latency: 5us}
  - {ends: [b, leaf], kind: ethernet, bandwidth: 25GB/s, latency: 5us}
"""


def same(one: Topology, other: Topology) -> bool:
    return dict(one.nodes) == dict(other.nodes) and dict(one.edges) == dict(other.edges)


@pytest.fixture
def refusal(tmp_path: Path) -> Refusal:
    def refused(text: str) -> list[str]:
        path = tmp_path / "cluster.yaml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(TopologyError) as found:
            read(path)
        return str(found.value).splitlines()

    return refused


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_maker_survives_a_file(name: str, count: int, tmp_path: Path) -> None:
    graph = make(name, count)
    write(graph, tmp_path / "cluster.yaml")
    again = read(tmp_path / "cluster.yaml")
    assert same(again, graph)
    assert again.graph["name"] == name
    assert num_machines(again) == num_machines(graph)


def test_odd_figures_and_one_way_links_survive_a_file(tmp_path: Path) -> None:
    graph: Topology = nx.DiGraph(name="odd: #1 & 'quoted'", nodes=2)
    for rank, node in enumerate(("yes", "1", "a b")):
        graph.add_node(node, kind="gpu", rank=rank, tier=0)
    graph.add_edge("yes", "1", kind="ib", bandwidth=1e10 / 3, latency=1e-6 / 3)
    graph.add_edge("1", "yes", kind="ib", bandwidth=1e10 / 7, latency=0.0)
    graph.add_edge("1", "a b", kind="pcie", bandwidth=1.0, latency=1e-12)
    graph.add_edge("a b", "yes", kind="memory", bandwidth=3.3e12, latency=7.7)
    graph.graph.update(segment=1448, window=128 * 1024 + 1)
    write(graph, tmp_path / "odd.yaml")
    again = read(tmp_path / "odd.yaml")
    assert same(again, graph)
    assert again.graph == graph.graph


def test_the_same_graph_has_the_same_text() -> None:
    assert dumps(make("dgx-a100", 2)) == dumps(make("dgx-a100", 2))


def test_a_named_topology_in_a_file_is_the_named_topology(written: Any) -> None:
    path = written("maker: star\nranks: 8\nbandwidth: 200Gb/s\nlatency: 5us\n", "cluster.yml")
    assert same(load(str(path)), load("star:8"))


def test_a_graph_in_a_file_is_that_graph(written: Any) -> None:
    path = written(TWO_HOSTS, "cluster.txt")
    graph = load(str(path))
    assert graph.graph["name"] == "two hosts"
    assert graph.edges["leaf", "a"] == {"kind": "ethernet", "bandwidth": 25e9, "latency": 5e-6}
    assert dict(graph.nodes["leaf"]) == {"kind": "switch", "tier": 1}


def test_the_examples_in_the_documentation_are_topologies() -> None:
    maker, graph = re.findall(r"::\n\n((?:    .*\n)+)", str(ringside.topologies.file.__doc__))
    assert same(loads(dedent(maker), "example"), load("star:8"))
    example = loads(dedent(graph), "example")
    assert [data["tier"] for _, data in example.nodes(data=True)] == [0, 0, 1]
    assert Routes(example).route(0, 1) == (("a", "leaf"), ("leaf", "b"))


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (
            """
            nodes:
              a: {kind: gpu, rank: 0}
              b: {kind: toaster}
            cables:
              - {ends: [a, b], kind: ethernet, bandwidth: 400G}
              - {ends: [a], kind: ethernet, bandwidth: 25GB/s, latency: 5us}
            """,
            ["nodes.b.kind", "cables.0.bandwidth", "cables.1.ends"],
        ),
        (
            """
            nodes:
              a: {kind: gpu, rank: first}
            cables:
              - {ends: [a, b], kind: rope, bandwidth: 25GB/s, colour: red}
            """,
            ["nodes.a.rank", "cables.0.kind", "cables.0.colour"],
        ),
        (
            "{maker: star, ranks: 0, bandwidth: 400G, latency: -5us}",
            ["star: ranks", "star: bandwidth", "star: latency"],
        ),
        (
            """
            nodes:
              a: {kind: gpu, rank: 0}
              b: {kind: gpu, rank: 0}
              c: {kind: gpu, rank: 5}
            cables:
              - {ends: [a, b], kind: ib, bandwidth: 1GB/s, one_way: true}
              - {ends: [c, c], kind: ib, bandwidth: 1GB/s, one_way: true}
            """,
            ["gpus 'a' and 'b' both have rank 0", "gpu 'c' has rank 5", "link 'c' -> 'c' joins"],
        ),
        (
            """
            nodes: {a: {kind: gpu, rank: 0}}
            cables:
              - {ends: [a, x], kind: ib, bandwidth: 1GB/s}
              - {ends: [y, z], kind: ib, bandwidth: 1GB/s}
            """,
            ["cables.0: unknown node 'x'", "cables.1: unknown node 'y'", "cables.1: unknown node 'z'"],
        ),
    ],
)
def test_three_mistakes_are_three_complaints(refusal: Refusal, text: str, places: list[str]) -> None:
    lines = refusal(text)
    assert len(lines) == 3
    for line, place in zip(lines, places, strict=True):
        assert place in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no mapping"),
        ("- a\n- b", "holds no mapping"),
        ("just text", "holds no mapping"),
        ("nodes: [unclosed", "not YAML"),
        ("nodes: &x [*y]", "not YAML"),
        ("!!python/object:os.system {}", "not YAML"),
        ("nodes:\ncables:", "nodes"),
        ("nodes: {}\ncables: []", "no rank"),
        ("cables: []", "nodes: is missing"),
        ("1: 2", "keys must be text"),
        ("maker: sun\nranks: 3", "unknown cluster 'sun'"),
        ("maker:\nranks: 3", "unknown cluster"),
        ("maker: [star]\nranks: 3", "unknown cluster"),
        ("maker: star\nranks: 3\n1: 2", "keys must be text"),
        ("maker: star\nranks: 3\nlatency: -1.0", "latency"),
        ("maker: star\nranks: 3\nbandwidth: .nan", "bandwidth"),
        ("maker: star\nranks: 3.5", "ranks"),
    ],
)
def test_a_file_that_is_no_topology_is_refused_in_our_words(
    refusal: Refusal, text: str, message: str
) -> None:
    assert message in "\n".join(refusal(text))


@pytest.mark.parametrize("figure", ["bandwidth: 25", "bandwidth: true", "latency: 5", "latency: true"])
def test_a_figure_without_unit_is_refused_in_a_file_as_on_the_command_line(
    refusal: Refusal, figure: str
) -> None:
    name = figure.split(":")[0]
    bare = TWO_HOSTS.replace({"bandwidth": "bandwidth: 25GB/s", "latency": "latency: 5us"}[name], figure)
    assert f"cables.0.{name}" in "\n".join(refusal(bare))


def test_a_cable_given_twice_is_refused(refusal: Refusal) -> None:
    twice = TWO_HOSTS + "  - {ends: [leaf, a], kind: ethernet, bandwidth: 1GB/s}\n"
    assert "cables.2" in "\n".join(refusal(twice))


def test_a_number_of_machines_below_one_is_refused(refusal: Refusal) -> None:
    assert "machines" in "\n".join(refusal("machines: -3\n" + TWO_HOSTS))


def test_binary_files_folders_and_missing_files_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(bytes(range(256)))
    for path in (binary, tmp_path, tmp_path / "missing.yaml"):
        with pytest.raises(TopologyError, match=str(path)):
            read(path)


def test_a_key_that_stands_twice_is_refused_with_its_line(refusal: Refusal) -> None:
    (complaint,) = refusal("maker: star\nranks: 4\nranks: 8\n")
    assert "'ranks' is given twice" in complaint
    assert "line 3" in complaint
