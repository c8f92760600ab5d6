"""What a network of switches is: ports, switches, cables, and a way from port to port by its structure.

A way is computed when somebody asks, from the numbers of its two ports: nothing is searched and nothing kept.
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
"""Numbers of cables up to which an array has a place for each."""

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

    @abstractmethod
    def crossed(self, src: Ints, dst: Ints) -> Iterator[tuple[Ints, Ints]]:
        """The cables on the ways of many pairs of ports at once: places of pairs, and the number of a cable.

        A cable has a number for each direction. Pairs that are not joined cross none.
        """

    @abstractmethod
    def cable(self, number: int) -> Hop:
        """The switches at the ends of a cable by its number in `crossed`, in that direction."""


def carried(fabric: Fabric, sent: Iterable[tuple[Ints, Ints, Floats]]) -> dict[Hop, float]:
    """The bytes on every cable between switches, one way, of what ports send to ports, some at a time."""
    found: Counter[int] = Counter()
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
                found[number] += figure
    return {fabric.cable(number): nbytes for number, nbytes in found.items()}


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


def turns(ecmp: Ecmp, src: Ints, dst: Ints) -> NDArray[np.uint64]:
    """`turn` of many pairs of ports at once."""
    to = dst.astype(np.uint64)
    return to if ecmp == "destination" else _many_mixed(_many_mixed(src.astype(np.uint64)) ^ to)


def _many_mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`_mixed` of many numbers; unsigned ones of 64 bits wrap around by themselves."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)


def _mixed(number: int) -> int:
    """A hash of 64 bits: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    number = (number + 0x9E3779B97F4A7C15) & (2**64 - 1)
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    number = (number ^ number >> 27) * 0x94D049BB133111EB & (2**64 - 1)
    return number ^ number >> 31
