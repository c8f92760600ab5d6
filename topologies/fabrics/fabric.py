"""Interface of a network of switches: ports, switches, cables, and routes between ports.

A route is computed on demand from the numbers of its two ports: nothing is searched or stored.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ringside.topologies.graph import Hop, Node, Topology, TopologyError, add_cable

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_COUNTED = 2**22
"""Cable numbers below this are counted in a dense array."""

MAX_PORTS = 1024
"""No switch has more; a larger count is a typing error."""

MAX_LINKS = 2**19
"""Limit on the links of a named topology: 262,144 ranks on a star. Such a graph is made in seconds."""

HOP_LATENCY = 0.3e-6
"""Seconds from switch to switch, an order of magnitude for a cut-through switch and its cable; a preset."""

Ecmp = Literal["destination", "hash"]
"""Choice among equal routes: by destination, as InfiniBand's forwarding tables do, or by a hash."""


class Fabric(ABC):
    """Switches that join ports 0 to ``ports - 1``; widths are multiples of what one port carries."""

    name: str
    ports: int
    num_cables: int
    """Number of cables between switches."""
    rails = False
    """Whether a message changes rails inside the sender's machine before it leaves, where possible."""

    @abstractmethod
    def switches(self) -> Iterator[tuple[Node, int]]:
        """Yield every switch with its tier: 1 for the switches that have ports."""

    @abstractmethod
    def cables(self) -> Iterator[tuple[Node, Node, float]]:
        """Yield every cable between two switches with its width."""

    @abstractmethod
    def above(self, port: int) -> Node:
        """Return the switch that a port is plugged into."""

    @abstractmethod
    def way(self, src: int, dst: int) -> list[Node] | None:
        """Return the switches from port to port, in order; ``None`` if they are not joined."""

    @abstractmethod
    def crossed(self, src: Ints, dst: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the cables on the routes of many pairs of ports: indices of pairs and the cable of each.

        A cable has a number for each direction. Pairs that are not joined cross none.
        """

    @abstractmethod
    def cable(self, number: int) -> Hop:
        """Return the switches at the ends of a cable, by its number in `crossed`, in that direction."""


def carried(fabric: Fabric, sent: Iterable[tuple[Ints, Ints, Floats]]) -> dict[Hop, float]:
    """Sum the bytes on every cable between switches, one way, over batches of messages between ports."""
    traffic: Counter[int] = Counter()
    for src, dst, nbytes in sent:
        for places, numbers in fabric.crossed(src, dst):
            if not len(numbers):
                continue
            if numbers.max() < _COUNTED:
                total = np.bincount(numbers, nbytes[places])
                used = np.flatnonzero(total)
                total = total[used]
            else:
                used, at = np.unique(numbers, return_inverse=True)
                total = np.bincount(at, nbytes[places])
            for number, figure in zip(used.tolist(), total.tolist(), strict=True):
                traffic[number] += figure
    return {fabric.cable(number): nbytes for number, nbytes in traffic.items()}


def check_size(fabric: Fabric) -> None:
    """Refuse a fabric with more links than a named topology may have, before making any."""
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

    ``width`` is the bandwidth of a cable of width 1 between switches. A port's cable has half of ``latency``,
    so a message between two ports of one switch takes it once; a cable between switches has ``hop_latency``.
    """
    graph.add_nodes_from(
        (switch, {"kind": "switch", "tier": tier + above}) for switch, above in fabric.switches()
    )
    for a, b, times in fabric.cables():
        add_cable(graph, a, b, kind=kind, bandwidth=times * width, latency=hop_latency)
    for number, (port, bandwidth) in enumerate(ports):
        add_cable(graph, port, fabric.above(number), kind=kind, bandwidth=bandwidth, latency=latency / 2)


def turn(ecmp: Ecmp, src: int, dst: int) -> int:
    """Return the number that selects one of several equal routes; see docs/fabrics.md."""
    return dst if ecmp == "destination" else _mixed(_mixed(src) ^ dst)


def turns(ecmp: Ecmp, src: Ints, dst: Ints) -> NDArray[np.uint64]:
    """Compute `turn` of many pairs of ports."""
    to = dst.astype(np.uint64)
    return to if ecmp == "destination" else _many_mixed(_many_mixed(src.astype(np.uint64)) ^ to)


def _many_mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Compute `_mixed` of many numbers; unsigned 64-bit integers wrap around by themselves."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)


def _mixed(number: int) -> int:
    """Hash to 64 bits by the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    number = (number + 0x9E3779B97F4A7C15) & (2**64 - 1)
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    number = (number ^ number >> 27) * 0x94D049BB133111EB & (2**64 - 1)
    return number ^ number >> 31
