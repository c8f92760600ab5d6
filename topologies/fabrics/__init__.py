"""Networks of switches that join ranks: functions that return plain graphs, as networkx generators do."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, ParamSpec

import networkx as nx
from pydantic import Field, PositiveFloat

from ringside.topologies.fabrics import refitting
from ringside.topologies.fabrics.direct import Torus
from ringside.topologies.fabrics.fabric import HOP_LATENCY, MAX_PORTS, Ecmp, Fabric, attach, check_size
from ringside.topologies.fabrics.refitting import Count, Dimensions, Radix, Ratios, Tiers
from ringside.topologies.fabrics.structure import Hosts
from ringside.topologies.graph import Topology, TopologyError, add_cable
from ringside.topologies.hardware import facts
from ringside.topologies.units import BytesPerSecond, Seconds, format_setting

P = ParamSpec("P")


def _remembered(maker: Callable[P, Topology]) -> Callable[P, Topology]:
    """Wrap a maker so that its graphs keep the recipe (`ringside.topologies.file`) that gives routes."""

    @wraps(maker)
    def made(*args: P.args, **kwargs: P.kwargs) -> Topology:
        graph = maker(*args, **kwargs)
        call = inspect.signature(maker).bind(*args, **kwargs).arguments
        values: dict[str, Any] = {key: format_setting(key, value) for key, value in call.items()}
        graph.graph["recipe"] = {"maker": maker.__name__.replace("_", "-"), **values}
        return graph

    return made


def star(ranks: int, bandwidth: BytesPerSecond = 25e9, latency: Seconds = 5e-6) -> Topology:
    """Build the textbook network: every rank has one full-duplex port into one switch.

    ``latency`` is the latency of a message from rank to rank; each of its two links has half.
    """
    return _one_switch("star", ranks, bandwidth, latency, node_kind="switch", link_kind="ethernet")


def nvlink_switch(ranks: int = 8, bandwidth: BytesPerSecond = 450e9, latency: Seconds = 0.6e-6) -> Topology:
    """Build GPUs behind one NVSwitch; the defaults are one HGX H100 board.

    450 GB/s is 18 NVLink 4 links of 25 GB/s each way (NVIDIA H100 Tensor Core GPU architecture
    white paper, 2022). 0.6 us is the hop latency that NCCL's tuner assumes for LL over NVLink
    (src/graph/tuning.cc, v2.30.7).
    """
    graph = _one_switch("nvlink_switch", ranks, bandwidth, latency, node_kind="nvswitch", link_kind="nvlink")
    graph.graph.update(facts("h100"))
    return graph


def leaf_spine(
    leaves: int,
    hosts_per_leaf: Annotated[int, Field(gt=0, le=MAX_PORTS)] = 4,
    bandwidth: BytesPerSecond = 25e9,
    latency: Seconds = 5e-6,
    oversubscription: PositiveFloat = 1,
) -> Topology:
    """Build two tiers of switches: ranks on leaves, in order, and every leaf on one spine.

    A leaf's uplink carries ``hosts_per_leaf * bandwidth / oversubscription`` each way; with an
    ``oversubscription`` of 1 that is the sum of its hosts' bandwidths. Every link has half of ``latency``,
    so a message takes ``latency`` within a leaf and twice that from leaf to leaf.
    """
    graph: Topology = nx.DiGraph(name="leaf-spine")
    graph.add_node("spine", kind="switch", tier=2)
    uplink = hosts_per_leaf * bandwidth / oversubscription
    for leaf in range(leaves):
        switch = f"leaf{leaf}"
        graph.add_node(switch, kind="switch", tier=1)
        add_cable(graph, switch, "spine", kind="ethernet", bandwidth=uplink, latency=latency / 2)
        for rank in range(leaf * hosts_per_leaf, (leaf + 1) * hosts_per_leaf):
            graph.add_node(f"gpu{rank}", kind="gpu", rank=rank, tier=0)
            add_cable(graph, f"gpu{rank}", switch, kind="ethernet", bandwidth=bandwidth, latency=latency / 2)
    return graph


@_remembered
def fat_tree(
    ranks: int,
    radix: Radix = 64,
    tiers: Tiers = 3,
    oversubscription: Ratios = "1",
    ecmp: Ecmp = "destination",
    bandwidth: BytesPerSecond = 25e9,
    latency: Seconds = 5e-6,
    hop_latency: Seconds = HOP_LATENCY,
) -> Topology:
    """Build a fat tree of switches of one radix: half of the ports down and half up, at the top all down.

    It is the k-ary fat tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008), with k^3/4 hosts for three
    tiers of radix k. An ``oversubscription`` of 2 at the leaves has twice as many ports down as up; ``2,1.5``
    gives the ratios of leaves and spines. ``latency`` is from rank to rank under one leaf, ``hop_latency``
    that of each cable between switches. Tiers that the ranks do not need are left out.
    """
    fabric = refitting.fat_tree(ranks, 1, radix, tiers, oversubscription, ecmp)
    return _plugged("fat-tree", fabric, bandwidth, latency, hop_latency)


@_remembered
def rail_optimized(
    ranks: int,
    rails: Count = 8,
    radix: Radix = 64,
    tiers: Tiers = 2,
    oversubscription: Ratios = "1",
    ecmp: Ecmp = "destination",
    bandwidth: BytesPerSecond = 25e9,
    latency: Seconds = 5e-6,
    hop_latency: Seconds = HOP_LATENCY,
) -> Topology:
    """Build a fat tree whose leaves each join one rail: the cards with the same number in their machines.

    NVIDIA's DGX SuperPOD reference architecture (RA-11333-001, 2023) cables cards this way: 32 machines of 8
    share 8 leaves of 64 ports. Here ranks stand for cards, and only the fabric joins the cards of a machine;
    ``--set fabric=rail_optimized`` joins real machines.
    """
    if tiers == 1 and rails > 1:
        raise TopologyError("rail-optimized: one tier joins no two rails; write tiers=2, or rails=1")
    hosts = -(-ranks // rails)
    fabric = refitting.rail_optimized(hosts, rails, radix, tiers, oversubscription, ecmp)
    return _plugged("rail-optimized", fabric, bandwidth, latency, hop_latency, ranks)


@_remembered
def torus(
    ranks: int,
    dimensions: Dimensions = "auto",
    shape: str = "auto",
    bandwidth: BytesPerSecond = 25e9,
    latency: Seconds = 1e-6,
    hop_latency: Seconds = HOP_LATENCY,
) -> Topology:
    """Build a 2-D or 3-D torus: a grid of ranks, each with its own router, whose rows and columns are rings.

    ``bandwidth`` is that of each cable between neighbours, one way; a rank can use all cables of its router
    at once. ``shape`` is for example ``8x8``; ``auto`` is the one nearest to a square or a cube. Routes are
    dimension-ordered (Dally, IEEE Transactions on Computers 39, 1990).
    """
    sides = refitting.sides_of(shape, ranks, dimensions)
    fabric = Torus(ranks, sides, width=1 / (2 * len(sides)))
    return _plugged("torus", fabric, 2 * len(sides) * bandwidth, latency, hop_latency)


@_remembered
def dragonfly(
    ranks: int,
    hosts_per_router: Count = 4,
    routers: Count = 8,
    global_links: Count = 4,
    ecmp: Ecmp = "destination",
    bandwidth: BytesPerSecond = 25e9,
    latency: Seconds = 5e-6,
    hop_latency: Seconds = HOP_LATENCY,
) -> Topology:
    """Build a dragonfly: groups of fully joined routers, every two groups joined, and minimal routes.

    In Kim, Dally, Scott and Abts (ISCA 2008) p is ``hosts_per_router``, a the ``routers`` per group and h the
    ``global_links`` per router; the default is their balanced example of 1056 ranks in 33 groups. With fewer
    groups the global links are spread evenly.
    """
    fabric = refitting.dragonfly(ranks, 1, hosts_per_router, routers, global_links, ecmp)
    return _plugged("dragonfly", fabric, bandwidth, latency, hop_latency)


def _plugged(
    name: str,
    fabric: Fabric,
    bandwidth: float,
    latency: float,
    hop_latency: float,
    ranks: int | None = None,
) -> Topology:
    """Plug ranks, in order, into a fabric's ports; into all of them by default."""
    check_size(fabric)
    count = fabric.ports if ranks is None else ranks
    graph: Topology = nx.DiGraph(name=name)
    hosts = [f"gpu{rank}" for rank in range(count)]
    graph.add_nodes_from((host, {"kind": "gpu", "rank": rank, "tier": 0}) for rank, host in enumerate(hosts))
    attach(
        graph, fabric, [(host, bandwidth) for host in hosts], tier=0, kind="ethernet", width=bandwidth,
        latency=latency, hop_latency=hop_latency,
    )  # fmt: skip
    graph.graph["structure"] = Hosts(fabric, hosts)
    return graph


def _one_switch(
    name: str, ranks: int, bandwidth: float, latency: float, *, node_kind: str, link_kind: str
) -> Topology:
    graph: Topology = nx.DiGraph(name=name)
    graph.add_node(node_kind, kind=node_kind, tier=1)
    for rank in range(ranks):
        gpu = f"gpu{rank}"
        graph.add_node(gpu, kind="gpu", rank=rank, tier=0)
        add_cable(graph, gpu, node_kind, kind=link_kind, bandwidth=bandwidth, latency=latency / 2)
    return graph
