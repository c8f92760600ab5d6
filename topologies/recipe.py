"""Recipes: plain text that makes a topology again, with its routes and its name.

A recipe is the content of a file that names a cluster (``maker: torus``), of one that describes machines
(`ringside.topologies.machine_file`), or the output of NCCL or nvidia-smi with a number of machines::

    dump: <system version="1">...
    name: mine
    nodes: 4
"""

import inspect
from collections.abc import Mapping
from typing import Any

from ringside.topologies import machine_file
from ringside.topologies.catalogue import MAKERS, make
from ringside.topologies.graph import Topology, TopologyError, name_of, num_machines, ranks
from ringside.topologies.importers import importer
from ringside.topologies.making import made
from ringside.topologies.units import shown

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
