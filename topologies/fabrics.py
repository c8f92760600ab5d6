"""Networks of one or two tiers of switches: functions that return plain graphs, as networkx generators do."""

from typing import Annotated

import networkx as nx
from pydantic import Field, PositiveFloat

from topologies.graph import Topology, add_cable
from topologies.hardware import facts
from topologies.units import BytesPerSecond, Seconds

MAX_PORTS = 1024
"""No switch has more; a larger count is a slip of the pen."""


def star(ranks: int, bandwidth: BytesPerSecond = 25e9, latency: Seconds = 5e-6) -> Topology:
    """The textbook network: every rank has one full-duplex port into one switch.

    ``latency`` is what one message pays from rank to rank; each of its two links carries half.
    """
    return _one_switch("star", ranks, bandwidth, latency, node_kind="switch", link_kind="ethernet")


def nvlink_switch(ranks: int = 8, bandwidth: BytesPerSecond = 450e9, latency: Seconds = 0.6e-6) -> Topology:
    """GPUs behind one NVSwitch; the defaults are one HGX H100 board.

    450 GB/s is 18 NVLink 4 links of 25 GB/s each way (NVIDIA H100 Tensor Core GPU architecture
    white paper, 2022). 0.6 us is the hop that NCCL's tuner assumes for LL over NVLink
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
    """Two tiers of switches: ranks on leaves, in order, and every leaf on one spine.

    A leaf's uplink carries ``hosts_per_leaf * bandwidth / oversubscription`` each way, the sum of what
    its hosts send where ``oversubscription`` is 1. Every link has half of ``latency``, so a message
    pays ``latency`` within a leaf and twice that from leaf to leaf.
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
