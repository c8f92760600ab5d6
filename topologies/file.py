"""Read and write topologies as YAML files.

A named topology with settings::

    maker: star
    ranks: 8
    bandwidth: 25GB/s

or machines of a common build in about ten lines, see `ringside.topologies.machine_file`; or the graph
itself, every cable once (``one_way: true`` for a link in one direction only)::

    name: two hosts
    nodes:
      a: {kind: gpu, rank: 0, tier: 0}
      b: {kind: gpu, rank: 1, tier: 0}
      leaf: {kind: switch, tier: 1}
    cables:
      - {ends: [a, leaf], kind: ethernet, bandwidth: 25GB/s, latency: 2.5us}
      - {ends: [b, leaf], kind: ethernet, bandwidth: 25GB/s, latency: 2.5us}
    recipe: {maker: star, ranks: 2}                 # optional, as all below: the maker's arguments
    device: a100                                    # see `ringside.topologies.graph`
    compute_capability: 80
    cpu: intel
    nccl: {socket: 22GB/s}
    transport: {segment: 64KiB, window: 256KiB}

Tiers give routes an order: 0 for ranks, one more for each layer of switches. Without them a message may take
any path, through other hosts too; see `ringside.topologies.routing`. If the graph equals the one that its
recipe makes, the file stands for that cluster. If the graph was edited, it is
used as it is, with the recipe's routes where their links still exist.

A recipe is plain text that makes a topology again, with its routes and its name: the content of such a file,
or the output of NCCL or nvidia-smi (``dump``) with a ``name`` and a number of machines (``nodes``).
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import yaml
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from ringside.topologies import machine_file, strict_yaml
from ringside.topologies.catalogue import MAKERS, make
from ringside.topologies.disk import regular, write_file
from ringside.topologies.graph import (
    LINK_KINDS,
    NODE_KINDS,
    Topology,
    TopologyError,
    add_cable,
    check,
    name_of,
    num_machines,
    ranks,
)
from ringside.topologies.importers import importer
from ringside.topologies.making import made
from ringside.topologies.strict_yaml import complaints
from ringside.topologies.units import (
    Bytes,
    BytesPerSecond,
    Seconds,
    format_duration,
    format_rate,
    format_size,
    shown,
)

DUMP = "dump"
"""The key of a recipe for the output of NCCL or nvidia-smi."""

_FACTS = ("name", "device", "compute_capability", "cpu", "segment", "window")


def made_of(
    recipe: Mapping[str, Any],
    source: str,
    count: int | None = None,
    values: Mapping[str, Any] | None = None,
) -> Topology:
    """Make the topology of a recipe; ``count`` and ``values`` override its own. Errors name ``source``."""
    if machine_file.KEY in recipe:
        return machine_file.topology(recipe, source, count, values)
    content = {**recipe, **(values or {})}
    if DUMP in recipe:
        text, name, own = (str(content.pop(key, "")) for key in (DUMP, "name", "nodes"))
        return imported(text, name, source, count or (own or None), content)
    maker = content.pop("maker", None)
    if not isinstance(maker, str) or maker not in MAKERS:
        known = ", ".join(MAKERS)
        raise TopologyError(f"{source}: maker: unknown cluster {shown(maker)}; write one of {known}")
    if count is not None:
        content.pop(counted(recipe), None)
    return make(maker, count, content)


def imported(
    text: str, name: str, source: str, count: int | str | None, values: Mapping[str, Any]
) -> Topology:
    """Join ``count`` machines described by ``text`` of NCCL or nvidia-smi; errors name ``source``."""
    maker = importer(text)
    if maker is None:
        raise TopologyError(
            f"{source}: {DUMP} is neither NCCL_TOPO_DUMP_FILE's XML nor a table of nvidia-smi"
        )
    graph = made(source, maker, count, values)
    nodes = {"nodes": num_machines(graph)}
    graph.graph.update(name=name, recipe={"name": name, **nodes, **values, DUMP: text})
    return graph


def count_of(recipe: Mapping[str, Any]) -> int | None:
    """Return a recipe's number of machines, ranks or leaves, or None if it has none."""
    what = counted(recipe)
    return int(recipe[what]) if what in recipe else None


def counted(recipe: Mapping[str, Any]) -> str:
    """Return what a recipe counts: nodes, ranks or leaves."""
    maker = MAKERS.get(recipe.get("maker", ""))
    return next(iter(inspect.signature(maker).parameters)) if maker else "nodes"


def original(graph: Topology) -> "Topology | None":
    """Make the topology of a graph's recipe, or of its name; return it if the graph still equals it."""
    recipe = recipe_of(graph)
    made = made_of(recipe, name_of(graph)) if recipe else None
    return made if made is not None and is_same(made, graph) else None


def with_settings(graph: Topology, values: Mapping[str, Any]) -> Topology:
    """Make a named topology with these settings in place of its own; return any other unchanged."""
    recipe = recipe_of(graph)
    if "maker" not in recipe or original(graph) is None:
        return graph
    kept = {key: recipe[key] for key in ("maker", counted(recipe), "processes") if key in recipe}
    changed = made_of({**values, **kept}, name_of(graph))
    return graph if is_same(changed, graph) else changed


def recipe_of(graph: Topology) -> Mapping[str, Any]:
    """Return a topology's recipe, or that of the machines it is named after; otherwise an empty one."""
    return graph.graph.get("recipe") or _usual(graph)


def is_same(one: Topology, other: Topology) -> bool:
    """Return whether two topologies have the same nodes, links and machines, regardless of routes."""
    same_facts = all(one.graph.get(key) == other.graph.get(key) for key in _FACTS)
    alike = same_facts and num_machines(one) == num_machines(other) and one.adj == other.adj
    return bool(alike and dict(one.nodes) == dict(other.nodes))


def _usual(graph: Topology) -> dict[str, Any]:
    """Return the recipe of the machines that a topology is named after."""
    name, nodes = name_of(graph), num_machines(graph)
    if name not in MAKERS or counted({"maker": name}) != "nodes":
        return {}
    is_of_processes = "processes" in inspect.signature(MAKERS[name]).parameters
    processes = {"processes": max(len(ranks(graph)) // nodes, 1)} if is_of_processes else {}
    return {"maker": name, "nodes": nodes, **processes}


_HARDWARE = ("device", "compute_capability", "cpu", "nccl")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Node(_Strict):
    kind: Literal[NODE_KINDS]  # type: ignore[valid-type]
    rank: int | None = None
    tier: int | None = None


class _Cable(_Strict):
    ends: tuple[str, str]
    kind: Literal[LINK_KINDS]  # type: ignore[valid-type]
    bandwidth: BytesPerSecond
    latency: Seconds = 0.0
    one_way: bool = False


class _Transport(_Strict):
    segment: Bytes
    window: Bytes


class _File(_Strict):
    name: str = "topology"
    machines: PositiveInt = 1
    nodes: dict[str, _Node]
    cables: list[_Cable]
    device: str | None = None
    compute_capability: int | None = None
    cpu: str | None = None
    nccl: machine_file.NcclView | None = None
    transport: _Transport | None = None
    recipe: dict[str, Any] | None = None


def read(path: Path) -> Topology:
    """Read the topology in a file; raise one `TopologyError` that lists everything wrong."""
    try:
        text = regular(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        known = ", ".join(MAKERS)
        raise TopologyError(f"{path}: no such file, nor a known cluster ({known})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TopologyError(f"{path}: cannot be read: {error}") from None
    return loads(text, str(path))


def loads(text: str, source: str) -> Topology:
    """Parse the topology that a YAML text describes; errors name its ``source``."""
    try:
        content = strict_yaml.loads(text)
    except yaml.YAMLError as error:
        raise TopologyError(
            f"{source}: not YAML: {' '.join(str(error).split())}; "
            "a cluster's file is YAML, NCCL_TOPO_DUMP_FILE's XML or a table of nvidia-smi topo -m"
        ) from None
    if not isinstance(content, dict):
        raise TopologyError(
            f"{source}: holds no mapping; write 'maker: star', 'machine: pcie-server' or "
            "'nodes:' and 'cables:'"
        )
    if not all(isinstance(key, str) for key in content):
        allowed = ", ".join(_File.model_fields)
        raise TopologyError(f"{source}: keys must be text; allowed: maker, machine, or {allowed}")
    if machine_file.KEY in content or "maker" in content:
        return made_of(content, source)
    return _graph(content, source)


def write(graph: Topology, path: Path) -> None:
    """Write the graph so that `read` returns an equal one."""
    write_file(path, dumps(graph))


def dumps(graph: Topology) -> str:
    """Return a graph as YAML text."""
    cables: list[dict[str, Any]] = []
    done: set[tuple[str, str]] = set()
    for a, b, data in graph.edges(data=True):
        if (a, b) in done:
            continue
        back = graph.edges.get((b, a))
        cable = {
            "ends": [a, b],
            "kind": data["kind"],
            "bandwidth": format_rate(data["bandwidth"]),
            "latency": format_duration(data["latency"]),
        }
        if back == data:
            done.add((b, a))
        else:
            cable["one_way"] = True
        cables.append(cable)
    content = {
        "name": graph.graph.get("name", "topology"),
        "machines": graph.graph.get("nodes", 1),
        **({"recipe": dict(recipe)} if (recipe := graph.graph.get("recipe")) else {}),
        "nodes": {node: dict(data) for node, data in graph.nodes(data=True)},
        "cables": cables,
    }
    content |= {key: graph.graph[key] for key in _HARDWARE if graph.graph.get(key) is not None}
    if facts := content.get("nccl"):
        content["nccl"] = {
            key: format_rate(value) if isinstance(value, float) else value for key, value in facts.items()
        }
    if "segment" in graph.graph:
        content["transport"] = {key: format_size(graph.graph[key]) for key in ("segment", "window")}
    return str(yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=110))


def _graph(content: dict[str, Any], source: str) -> Topology:
    try:
        file = _File(**content)
    except ValidationError as error:
        known = [field for model in (_File, _Cable, _Transport) for field in model.model_fields]
        raise TopologyError(complaints(error, source, known)) from None
    except TypeError:
        raise TopologyError(
            f"{source}: keys must be text; allowed: {', '.join(_File.model_fields)}"
        ) from None
    graph: Topology = nx.DiGraph(name=file.name, nodes=file.machines)
    graph.graph.update(file.model_dump(include=set(_HARDWARE), exclude_none=True))
    if file.transport:
        graph.graph.update(file.transport.model_dump())
    for node, attributes in file.nodes.items():
        graph.add_node(node, **attributes.model_dump(exclude_none=True))
    unknown = [
        f"{source}: cables.{index}: unknown node {end!r}"
        for index, cable in enumerate(file.cables)
        for end in cable.ends
        if end not in file.nodes
    ]
    if unknown:
        raise TopologyError("\n".join(unknown))
    for index, cable in enumerate(file.cables):
        if graph.has_edge(*cable.ends) or (not cable.one_way and graph.has_edge(*reversed(cable.ends))):
            raise TopologyError(f"{source}: cables.{index}: {' and '.join(cable.ends)} are joined already")
        link = {"kind": cable.kind, "bandwidth": cable.bandwidth, "latency": cable.latency}
        if cable.one_way:
            graph.add_edge(*cable.ends, **link)
        else:
            add_cable(graph, *cable.ends, **link)
    check(graph)
    return graph if file.recipe is None else _remade(graph, file.recipe, source)


def _remade(graph: Topology, recipe: dict[str, Any], source: str) -> Topology:
    """Return the recipe's topology if it equals the graph; otherwise the graph with the recipe's routes."""
    made = made_of(recipe, f"{source}: recipe")
    if is_same(made, graph):
        return made
    for key in ("structure", "recipe"):
        if key in made.graph:
            graph.graph[key] = made.graph[key]
    return graph
