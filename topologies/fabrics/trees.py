"""Trees of switches with several roots, with up/down routing.

An extended generalized fat tree (Ohring, Ibel, Das and Kumar, IPPS 1995): a switch of tier t has ``down[t]``
ports down and ``up[t]`` up. A k-ary fat tree (Al-Fares, Loukissas and Vahdat, SIGCOMM 2008) is one whose
switches have k/2 of either, and k down at the top.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from ringside.topologies.fabrics.fabric import Ecmp, Fabric, Ints, turn, turns
from ringside.topologies.graph import Hop, Node, TopologyError

_TIERS = ("leaf", "spine", "core")

MAX_TIERS = len(_TIERS)


class FabricTree(Fabric):
    """A tree of switches whose leaves have the ports, in order.

    A switch is named by its tier, by the number of the subtree that it tops, and by its place among the
    switches on top of that subtree: ``spine2.5``. Switches that no port needs are left out.
    """

    def __init__(
        self,
        name: str,
        ports: int,
        down: Sequence[int],
        up: Sequence[int],
        *,
        width: float = 1.0,
        ecmp: Ecmp = "destination",
    ) -> None:
        self.name, self.ports = name, ports
        self._width, self._ecmp = width, ecmp
        self._under = [prod(down[: tier + 1]) for tier in range(len(down))]
        """Ports below a switch of each tier."""
        last = max(self.place(port) for port in self._farthest())
        if last >= self._under[-1]:
            tiers_text = f"{len(down)} tiers" if len(down) > 1 else "1 tier"
            raise TopologyError(
                f"{name}: {tiers_text} of switches with {', '.join(map(str, down))} ports down have "
                f"{self._under[-1]} ports, but {last + 1} are needed; write a larger "
                f"radix{' or more tiers' if len(down) < MAX_TIERS else ''}"
            )
        tiers = next(tier for tier, under in enumerate(self._under) if last < under) + 1
        self._up = tuple(up[: tiers - 1])
        self._subtrees = [last // under + 1 for under in self._under[:tiers]]
        self.num_cables = sum(
            subtrees * prod(self._up[: tier + 1]) for tier, subtrees in enumerate(self._subtrees[:-1])
        )

    def place(self, port: int) -> int:
        """Return a port's position, counted along the leaves."""
        return port

    def switches(self) -> Iterator[tuple[Node, int]]:
        """Yield every switch with its tier: 1 for the leaves."""
        for tier, subtrees in enumerate(self._subtrees):
            for subtree in range(subtrees):
                for digits in product(*map(range, self._up[:tier])):
                    yield _called(tier, subtree, digits), tier + 1

    def cables(self) -> Iterator[tuple[Node, Node, float]]:
        """Yield every cable between two switches with its width."""
        for tier, subtrees in enumerate(self._subtrees[:-1]):
            for subtree in range(subtrees):
                above = subtree * self._under[tier] // self._under[tier + 1]
                for digits in product(*map(range, self._up[:tier])):
                    for number in range(self._up[tier]):
                        upper = _called(tier + 1, above, (*digits, number))
                        yield _called(tier, subtree, digits), upper, self._width

    def above(self, port: int) -> Node:
        """Return the leaf that a port is plugged into."""
        return _called(0, self.place(port) // self._under[0], ())

    def way(self, src: int, dst: int) -> list[Node] | None:
        """Climb to the first tier where both ports are below one switch, and descend."""
        a, b = self.place(src), self.place(dst)
        top = 0
        while a // self._under[top] != b // self._under[top]:
            top += 1
            if top == len(self._subtrees):
                return None
        number, digits = turn(self._ecmp, a, b), list[int]()
        for up in self._up[:top]:
            digits.append(number % up)
            number //= up
        climb = [_called(tier, a // self._under[tier], digits[:tier]) for tier in range(top + 1)]
        descent = [_called(tier, b // self._under[tier], digits[:tier]) for tier in range(top)]
        return climb + descent[::-1]

    def crossed(self, src: Ints, dst: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield, tier by tier, the cable up from each source and the cable down to each destination."""
        a, b = self.places(src), self.places(dst)
        number, first = turns(self._ecmp, a, b), 0
        apart = [a // under != b // under for under in self._under[: len(self._subtrees)]]
        for tier, ways in enumerate(self._ways()):
            above = np.flatnonzero(apart[tier] & ~apart[-1])
            digits = (number[above] % np.uint64(ways)).astype(np.int64)
            for end in (a, b):
                yield above, first + end[above] // self._under[tier] * ways + digits
                first += self._subtrees[tier] * ways

    def cable(self, number: int) -> Hop:
        """Return the hop up, or down, by one tier."""
        for tier, ways in enumerate(self._ways()):
            for upwards in (True, False):
                if number < self._subtrees[tier] * ways:
                    subtree, rest = divmod(number, ways)
                    digits = list[int]()
                    for up in self._up[: tier + 1]:
                        digits.append(rest % up)
                        rest //= up
                    below = _called(tier, subtree, digits[:-1])
                    upper = _called(tier + 1, subtree * self._under[tier] // self._under[tier + 1], digits)
                    return (below, upper) if upwards else (upper, below)
                number -= self._subtrees[tier] * ways
        raise IndexError(f"{self.name}: no cable {number}")

    def places(self, ports: Ints) -> Ints:
        """Compute `place` of many ports."""
        return ports

    def _ways(self) -> Iterator[int]:
        """Yield, tier by tier, the number of cables up from all switches on top of one subtree."""
        return (prod(self._up[: tier + 1]) for tier in range(len(self._up)))

    def _farthest(self) -> Sequence[int]:
        """Return candidates for the port farthest along the leaves."""
        return (self.ports - 1,)


class Rails(FabricTree):
    """A tree whose leaves each join one rail: the cards with one number, of consecutive machines.

    The machines under the same leaves are a scalable unit (NVIDIA DGX SuperPOD reference architecture,
    RA-11333-001, 2023): 32 machines of 8 cards on 8 leaves there. With one tier rails are not joined.
    """

    rails = True

    def __init__(
        self, name: str, hosts: int, cards: int, down: Sequence[int], up: Sequence[int], ecmp: Ecmp
    ) -> None:
        self._cards, self._unit, self._hosts = cards, down[0], hosts
        if len(down) == 1 and hosts > down[0]:
            raise TopologyError(
                f"{name}: a rail of one switch holds {down[0]} machines, not {hosts}; write tiers=2 "
                "or a larger radix"
            )
        if len(down) > 1:
            super().__init__(name, hosts * cards, down, up, ecmp=ecmp)
            return
        super().__init__(name, hosts * cards, [down[0] * cards], up, ecmp=ecmp)
        self._under, self._subtrees = [down[0]], [cards]

    def place(self, port: int) -> int:
        """Return a port's position, counted along the leaves: unit by unit, in each unit rail by rail."""
        host, card = divmod(port, self._cards)
        unit, place = divmod(host, self._unit)
        return (unit * self._cards + card) * self._unit + place

    def places(self, ports: Ints) -> Ints:
        """Compute `place` of many ports."""
        host, card = ports // self._cards, ports % self._cards
        return (host // self._unit * self._cards + card) * self._unit + host % self._unit

    def _farthest(self) -> Sequence[int]:
        first = (self._hosts - 1) // self._unit * self._unit
        return range(first * self._cards, self.ports)


def ports_of(
    name: str, radix: int, tiers: int, oversubscription: float | str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ports down and up of a switch of ``radix`` ports in each tier; the last has none up.

    ``oversubscription`` is that of the leaves, or of every tier but the last, as in ``2,1.5``. Ports up are
    radix / (1 + oversubscription), rounded down; ports down are at most oversubscription times those.
    """
    ratios = _ratios(name, oversubscription, tiers)
    down, up = [], []
    for ratio in ratios:
        above = int(radix / (1 + ratio) + 1e-9)
        below = int(ratio * above + 1e-9)
        if not above or not below:
            raise TopologyError(
                f"{name}: oversubscription {ratio:g} leaves a switch of {radix} ports none "
                f"{'down' if above else 'up'}; allowed here: {1 / (radix - 1):.3g} to {radix - 1}"
            )
        up.append(above)
        down.append(below)
    return (*down, radix), tuple(up)


def _ratios(name: str, oversubscription: float | str, tiers: int) -> list[float]:
    try:
        ratios = [float(text) for text in str(oversubscription).split(",")]
    except ValueError:
        ratios = []
    if not ratios or not all(0 < ratio <= 1e6 for ratio in ratios) or len(ratios) > max(tiers - 1, 1):
        raise TopologyError(
            f"{name}: oversubscription is {str(oversubscription)[:40]!r}; write one number above 0 for the "
            f"leaves, or up to {max(tiers - 1, 1)} of them, for each tier but the last: 2,1.5"
        )
    if tiers == 1 and ratios != [1.0]:
        raise TopologyError(
            f"{name}: one tier has nothing above it to be oversubscribed; leave oversubscription out, or "
            "write tiers=2"
        )
    return (ratios + [1.0] * (tiers - 1 - len(ratios)))[: tiers - 1]


def _called(tier: int, subtree: int, digits: Sequence[int]) -> Node:
    return _TIERS[tier] + ".".join(map(str, (subtree, *digits)))
