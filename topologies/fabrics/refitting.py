"""Machines of any kind on a fabric, by ``fabric=rail_optimized`` among a machine's settings."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import Annotated, Any, Literal

import networkx as nx
from pydantic import BeforeValidator, ConfigDict, Field, PositiveFloat, ValidationError, create_model

from ringside.topologies.chassis import copies
from ringside.topologies.fabrics.direct import Dragonfly, Torus, shape_of
from ringside.topologies.fabrics.fabric import HOP_LATENCY, MAX_PORTS, Ecmp, Fabric, attach, check_size
from ringside.topologies.fabrics.structure import Machines
from ringside.topologies.fabrics.trees import MAX_TIERS, FabricTree, Rails, ports_of
from ringside.topologies.graph import Node, Topology, TopologyError, name_of, num_machines
from ringside.topologies.strict_yaml import complaints
from ringside.topologies.units import Seconds, format_setting

Radix = Annotated[int, Field(ge=2, le=MAX_PORTS)]
Tiers = Annotated[int, Field(ge=1, le=MAX_TIERS)]
Count = Annotated[int, Field(ge=1, le=MAX_PORTS)]
Dimensions = Annotated[Literal["auto", "2", "3"], BeforeValidator(str)]
Ratios = Annotated[float | str, BeforeValidator(str)]


def rail_optimized(
    hosts: int,
    cards: int,
    radix: Radix = 64,
    tiers: Tiers = 2,
    oversubscription: Ratios = "1",
    ecmp: Ecmp = "destination",
) -> Fabric:
    """Join the first cards of a unit's machines by one leaf, the second by another; leaves by a fat tree."""
    down, up = ports_of("rail_optimized", radix, tiers, oversubscription)
    return Rails("rail_optimized", hosts, cards, down, up, ecmp)


def fat_tree(
    hosts: int,
    cards: int,
    radix: Radix = 64,
    tiers: Tiers = 3,
    oversubscription: Ratios = "1",
    ecmp: Ecmp = "destination",
) -> Fabric:
    """Build a fat tree of switches of one radix; the cards of a machine are on adjacent ports."""
    down, up = ports_of("fat_tree", radix, tiers, oversubscription)
    return FabricTree("fat_tree", hosts * cards, down, up, ecmp=ecmp)


def leaf_spine(
    hosts: int, cards: int, hosts_per_leaf: Count = 4, oversubscription: PositiveFloat = 1
) -> Fabric:
    """Put machines on leaves, in order, and join every leaf to one spine by one wide cable."""
    under = hosts_per_leaf * cards
    leaves = -(-hosts // hosts_per_leaf)
    return FabricTree("leaf_spine", hosts * cards, (under, leaves), (1,), width=under / oversubscription)


def torus(
    hosts: int,
    cards: int,
    dimensions: Dimensions = "auto",
    shape: str = "auto",
    oversubscription: PositiveFloat = 1,
) -> Fabric:
    """Build a torus of one router per machine; a cable to a neighbour is as wide as all its cards."""
    return Torus(
        hosts * cards, sides_of(shape, hosts, dimensions), per_router=cards, width=cards / oversubscription
    )


def dragonfly(
    hosts: int,
    cards: int,
    hosts_per_router: Count = 4,
    routers: Count = 8,
    global_links: Count = 4,
    ecmp: Ecmp = "destination",
) -> Fabric:
    """Build a dragonfly; each router has the cards of consecutive machines."""
    return Dragonfly(hosts * cards, hosts_per_router * cards, routers, global_links, ecmp)


FABRICS: dict[str, Callable[..., Fabric]] = {
    maker.__name__: maker for maker in (rail_optimized, fat_tree, leaf_spine, torus, dragonfly)
}
"""Fabrics by name: functions of the numbers of machines and of cards per machine, and of settings."""


def fields_of(fabric: str) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default of each setting of a fabric, ``hop_latency`` included."""
    parameters = list(inspect.signature(FABRICS[fabric]).parameters.values())[2:]
    return {p.name: (p.annotation, p.default) for p in parameters} | {"hop_latency": (Seconds, HOP_LATENCY)}


def keys_of(fabric: str) -> list[str]:
    """Return the names of a fabric's settings."""
    return list(fields_of(fabric))


def figures_of_fabric(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the fabric that ``values`` name, if any, each with its default as text."""
    fabric = parted(values)[0]
    fields = {} if fabric is None else fields_of(fabric)
    return {key: format_setting(key, default) for key, (_, default) in fields.items()}


def check_of_fabric(name: str, unknown: Iterable[str]) -> None:
    """Raise TopologyError if an ``unknown`` setting of machines is one of fabrics, which are not set."""
    for key in unknown:
        if fabrics := [fabric for fabric in FABRICS if key in keys_of(fabric)]:
            raise TopologyError(
                f"{name}: {key} is a setting of fabrics; write --set fabric=NAME with one of "
                f"{', '.join(fabrics)}"
            )


def parted(values: Mapping[str, Any]) -> tuple[str | None, dict[str, Any], dict[str, Any]]:
    """Split settings into the fabric they name, if known, the fabric's settings and the machine's."""
    named = values.get("fabric")
    known = named.replace("-", "_") if isinstance(named, str) else None
    if known not in FABRICS:
        return None, {}, dict(values)
    keys = keys_of(known)
    rest = {key: value for key, value in values.items() if key != "fabric"}
    return (
        known,
        {key: rest[key] for key in rest if key in keys},
        {key: rest[key] for key in rest if key not in keys},
    )


def refitted(two: Topology, nodes: int, fabric: str, values: Mapping[str, Any]) -> Topology:
    """Join ``nodes`` machines like those of the cluster ``two`` by a fabric in place of its switches."""
    machine, cards = _machine(two)
    name = f"{two.graph.get('name', 'cluster')}: {fabric}"
    if not cards:
        raise TopologyError(f"{name}: machines without network cards cannot be joined; write another machine")
    settings = _checked(name, fabric, values)
    hop_latency = settings.pop("hop_latency")
    built = FABRICS[fabric](nodes, len(cards), **settings)
    check_size(built)
    graph = copies(machine, nodes)
    if nodes == 1:
        return graph
    attach(
        graph, built,
        [(f"node{node}/{card}", link["bandwidth"]) for node in range(nodes) for card, link in cards.items()],
        tier=max(data.get("tier", 0) for _, data in machine.nodes(data=True)),
        kind=next(iter(cards.values()))["kind"],
        width=fmean(link["bandwidth"] for link in cards.values()),
        latency=2 * max(link["latency"] for link in cards.values()),
        hop_latency=hop_latency,
    )  # fmt: skip
    graph.graph["structure"] = Machines(machine, list(cards), built, nodes)
    return graph


def sides_of(shape: str, hosts: int, dimensions: Dimensions) -> tuple[int, ...]:
    """Parse a shape such as ``8x8`` or ``4x4x4``; ``auto`` derives it from ``hosts`` and ``dimensions``."""
    if shape == "auto":
        return shape_of(hosts, 2 if dimensions == "auto" else int(dimensions))
    sides = shape.lower().split("x")
    if not 1 <= len(sides) <= 3 or not all(s.isdecimal() and 0 < len(s) < 7 and int(s) for s in sides):
        raise TopologyError(f"torus: shape is {shape[:40]!r}; write for example 8x8 or 4x4x4, or auto")
    if dimensions not in ("auto", str(len(sides))):
        raise TopologyError(f"torus: shape {shape} does not have {dimensions} dimensions; remove one of them")
    return tuple(map(int, sides))


def _machine(two: Topology) -> tuple[Topology, dict[Node, dict[str, Any]]]:
    """Extract one machine of a cluster, with its own names, and its cards' cables to the network."""
    prefix = "node0/"
    if num_machines(two) < 2:
        raise TopologyError(f"{name_of(two)}: a fabric joins two machines or more; write more nodes")
    machine: Topology = nx.DiGraph(**{key: value for key, value in two.graph.items() if key != "nodes"})
    for node, data in two.nodes(data=True):
        if node.startswith(prefix):
            machine.add_node(node.removeprefix(prefix), **data)
    for a, b, link in two.edges(data=True):
        if a.startswith(prefix) and b.startswith(prefix):
            machine.add_edge(a.removeprefix(prefix), b.removeprefix(prefix), **link)
    cards = {
        node: two.edges[prefix + node, other]
        for node in machine
        for other in two.successors(prefix + node)
        if not other.startswith(prefix)
    }
    return machine, cards


def _checked(name: str, fabric: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Parse a fabric's settings and add defaults; one error lists everything wrong with them."""
    fields: dict[str, Any] = dict(fields_of(fabric))
    model = create_model(fabric, __config__=ConfigDict(extra="forbid"), **fields)
    try:
        checked = model(**{key: str(value) for key, value in values.items()})
    except ValidationError as error:
        raise TopologyError(complaints(error, name, list(fields))) from None
    return dict(checked)
