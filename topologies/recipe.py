"""What made a topology, as plain text that makes it again: its routes and its name follow from that.

A recipe is the content of a file that names a cluster (``maker: torus``), of one that describes machines
(`ringside.topologies.machines.described`), or what NCCL or nvidia-smi wrote of a machine, with how many there
are::

    dump: <system version="1">...
    name: mine
    nodes: 4
"""

import inspect
from collections.abc import Mapping
from typing import Any

from ringside.topologies.catalogue import MAKERS, make
from ringside.topologies.graph import Topology, TopologyError, name_of, num_machines, ranks
from ringside.topologies.importers import importer
from ringside.topologies.machines import described
from ringside.topologies.making import made
from ringside.topologies.units import shown

DUMP = "dump"
"""The key of a recipe under which stands what NCCL or nvidia-smi wrote."""

_TOLD = ("name", "device", "compute_capability", "cpu", "segment", "window")


def made_of(
    recipe: Mapping[str, Any],
    source: str,
    count: int | None = None,
    values: Mapping[str, Any] | None = None,
) -> Topology:
    """The topology of a recipe; ``count`` and ``values`` stand over its own. Errors name ``source``."""
    if described.KEY in recipe:
        return described.topology(recipe, source, count, values)
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
    """``count`` machines that NCCL or nvidia-smi wrote ``text`` of; errors name ``source``."""
    maker = importer(text)
    if maker is None:
        raise TopologyError(f"{source}: {DUMP} is neither NCCL_TOPO_DUMP_FILE's nor a table of nvidia-smi's")
    graph = made(source, maker, count, values)
    nodes = {"nodes": num_machines(graph)}
    graph.graph.update(name=name, recipe={"name": name, **nodes, **values, DUMP: text})
    return graph


def count_of(recipe: Mapping[str, Any]) -> int | None:
    """How many machines, ranks or leaves a recipe is of, where it says so."""
    what = counted(recipe)
    return int(recipe[what]) if what in recipe else None


def counted(recipe: Mapping[str, Any]) -> str:
    """What a recipe's count is of: nodes, ranks or leaves."""
    maker = MAKERS.get(recipe.get("maker", ""))
    return next(iter(inspect.signature(maker).parameters)) if maker else "nodes"


def original(graph: Topology) -> "Topology | None":
    """What a topology's recipe makes, or its name in the catalogue, if the topology is still the same."""
    recipe = recipe_of(graph)
    made = made_of(recipe, name_of(graph)) if recipe else None
    return made if made is not None and is_same(made, graph) else None


def with_settings(graph: Topology, values: Mapping[str, Any]) -> Topology:
    """A topology by name with these settings in place of all of its own; any other as it is."""
    recipe = recipe_of(graph)
    if "maker" not in recipe or original(graph) is None:
        return graph
    kept = {key: recipe[key] for key in ("maker", counted(recipe), "processes") if key in recipe}
    found = made_of({**values, **kept}, name_of(graph))
    return graph if is_same(found, graph) else found


def recipe_of(graph: Topology) -> Mapping[str, Any]:
    """What made a topology, or else the machines that it is named for; nothing of any other."""
    return graph.graph.get("recipe") or _usual(graph)


def is_same(one: Topology, other: Topology) -> bool:
    """Whether two topologies have the same nodes, links and machines, whatever their routes are."""
    told = all(one.graph.get(key) == other.graph.get(key) for key in _TOLD)
    alike = told and num_machines(one) == num_machines(other) and one.adj == other.adj
    return bool(alike and dict(one.nodes) == dict(other.nodes))


def _usual(graph: Topology) -> dict[str, Any]:
    """The machines that a topology without a recipe is named for."""
    name, nodes = name_of(graph), num_machines(graph)
    if name not in MAKERS or counted({"maker": name}) != "nodes":
        return {}
    is_of_processes = "processes" in inspect.signature(MAKERS[name]).parameters
    processes = {"processes": max(len(ranks(graph)) // nodes, 1)} if is_of_processes else {}
    return {"maker": name, "nodes": nodes, **processes}
