"""What a network of switches is: ports, switches, cables, and a way from port to port by its structure.

A way is computed when somebody asks, from the numbers of its two ports: nothing is searched and nothing kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal

from topologies.graph import Node, Topology, TopologyError, add_cable

MAX_PORTS = 1024
"""No switch has more; a larger count is a slip of the pen."""

MAX_LINKS = 2**19
"""As many links a topology by name may have: 262,144 ranks on a star. Its graph is made in seconds."""

HOP_LATENCY = 0.3e-6
"""Seconds from switch to switch: the order of what a cut-through switch and its cable take; a preset."""

Ecmp = Literal["destination", "hash"]
"""Which of several equal ways: by the destination, as InfiniBand's forwarding tables do, or by a hash."""


class Fabric(ABC):
    """Switches that join ports 0 to ``ports - 1``; widths are multiples of what one port carries."""

    name: str
    ports: int
    num_cables: int
    """Among the switches."""
    rails = False
    """Whether a message changes rails inside the sender's machine, where it can, before it leaves."""

    @abstractmethod
    def switches(self) -> Iterator[tuple[Node, int]]:
        """Every switch, with how many tiers of switches it is above the ports: 1 or more."""

    @abstractmethod
    def cables(self) -> Iterator[tuple[Node, Node, float]]:
        """Every cable between two switches with its width."""

    @abstractmethod
    def above(self, port: int) -> Node:
        """The switch that a port is plugged into."""

    @abstractmethod
    def way(self, src: int, dst: int) -> list[Node] | None:
        """The switches from port to port, in order; ``None`` where they are not joined."""


def check_size(fabric: Fabric) -> None:
    """Refuse a fabric of more links than a graph by name may have, before any is made."""
    links = 2 * (fabric.num_cables + fabric.ports)
    if links > MAX_LINKS:
        raise TopologyError(
            f"{fabric.name}: {links} links; allowed: {MAX_LINKS}; write fewer hosts, or a smaller radix if "
            "it has one"
        )


def attach(
    graph: Topology,
    fabric: Fabric,
    ports: Sequence[tuple[Node, float]],
    *,
    tier: int,
    kind: str,
    width: float,
    latency: float,
    hop_latency: float,
) -> None:
    """Plug ports, each with its bytes/s, into a fabric whose switches stand above ``tier``.

    ``width`` is what a cable of width 1 between switches carries. A port's cable has half of ``latency``,
    so that two ports on one switch pay it once; each cable between switches has ``hop_latency``.
    """
    graph.add_nodes_from(
        (switch, {"kind": "switch", "tier": tier + above}) for switch, above in fabric.switches()
    )
    for a, b, times in fabric.cables():
        add_cable(graph, a, b, kind=kind, bandwidth=times * width, latency=hop_latency)
    for number, (port, bandwidth) in enumerate(ports):
        add_cable(graph, port, fabric.above(number), kind=kind, bandwidth=bandwidth, latency=latency / 2)


def turn(ecmp: Ecmp, src: int, dst: int) -> int:
    """The number by which one of several equal ways is taken; docs/fabrics.md says how even that is."""
    return dst if ecmp == "destination" else _mixed(_mixed(src) ^ dst)


def _mixed(number: int) -> int:
    """A hash of 64 bits: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    number = (number + 0x9E3779B97F4A7C15) & (2**64 - 1)
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    number = (number ^ number >> 27) * 0x94D049BB133111EB & (2**64 - 1)
    return number ^ number >> 31
