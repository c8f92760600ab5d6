"""Direct networks, whose routers all have ports: tori and dragonflies."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from ringside.topologies.fabrics.fabric import Ecmp, Fabric, Ints, turn, turns
from ringside.topologies.graph import Hop, Node, TopologyError


class Torus(Fabric):
    """Routers on a grid whose rows and columns are rings: a k-ary n-cube (Dally, IEEE ToC 39, 1990).

    Each router has ``per_router`` consecutive ports. Routes are dimension-ordered and take the shorter way
    round; if both ways are equally long, routers at an even place in that dimension send forwards, odd ones
    back.
    """

    def __init__(self, ports: int, shape: Sequence[int], *, per_router: int = 1, width: float = 1.0) -> None:
        self.name, self.ports = "torus", ports
        self._shape, self._per_router, self._width = tuple(shape), per_router, width
        routers = -(-ports // per_router)
        if prod(shape) != routers:
            raise TopologyError(
                f"torus: shape {'x'.join(map(str, shape))} has {prod(shape)} places, not {routers}; write a "
                "shape whose product they are, or leave it out"
            )
        # a ring of two is one cable
        self.num_cables = sum(routers // (2 if side == 2 else 1) for side in shape if side > 1)

    def switches(self) -> Iterator[tuple[Node, int]]:
        """Yield every router, all in one tier."""
        for place in product(*map(range, self._shape)):
            yield _router(place), 1

    def cables(self) -> Iterator[tuple[Node, Node, float]]:
        """Yield the cable from each router to the next in every dimension."""
        for place in product(*map(range, self._shape)):
            for dimension, side in enumerate(self._shape):
                if side > 2 or (side == 2 and place[dimension] == 0):
                    yield _router(place), _router(self._beside(place, dimension, 1)), self._width

    def above(self, port: int) -> Node:
        """Return the router that a port is plugged into."""
        return _router(self._place(port))

    def way(self, src: int, dst: int) -> list[Node] | None:
        """Route along one dimension after another."""
        here, there = self._place(src), self._place(dst)
        nodes = [_router(here)]
        for dimension, side in enumerate(self._shape):
            onwards = (there[dimension] - here[dimension]) % side
            forwards = 2 * onwards < side or (2 * onwards == side and here[dimension] % 2 == 0)
            for _ in range(onwards if forwards else side - onwards):
                here = self._beside(here, dimension, 1 if forwards else -1)
                nodes.append(_router(here))
        return nodes

    def crossed(self, src: Ints, dst: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the cables along each dimension; their numbers count dimensions and directions."""
        here, there = src // self._per_router, dst // self._per_router
        after = prod(self._shape)
        for dimension, side in enumerate(self._shape):
            after //= side
            at, to = here // after % side, there // after % side
            onwards = (to - at) % side
            forwards = (2 * onwards < side) | ((2 * onwards == side) & (at % 2 == 0))
            steps, sign = np.where(forwards, onwards, side - onwards), np.where(forwards, 1, -1)
            for step in range(int(steps.max(initial=0))):
                now = np.flatnonzero(steps > step)
                router = here[now] + ((at + sign * step) % side - at)[now] * after
                yield now, (router * len(self._shape) + dimension) * 2 + 1 - forwards[now]
            here = here + (to - at) * after

    def cable(self, number: int) -> Hop:
        """Return the hop from a router to the next, or the previous, router in a dimension."""
        rest, back = divmod(number, 2)
        router, dimension = divmod(rest, len(self._shape))
        place = self._place(router * self._per_router)
        return _router(place), _router(self._beside(place, dimension, -1 if back else 1))

    def _place(self, port: int) -> tuple[int, ...]:
        number, place = port // self._per_router, list[int]()
        for side in reversed(self._shape):
            number, rest = divmod(number, side)
            place.append(rest)
        return tuple(reversed(place))

    def _beside(self, place: tuple[int, ...], dimension: int, step: int) -> tuple[int, ...]:
        moved = (place[dimension] + step) % self._shape[dimension]
        return (*place[:dimension], moved, *place[dimension + 1 :])


class Dragonfly(Fabric):
    """Groups of fully joined routers, with cables between every two groups.

    Kim, Dally, Scott and Abts, ISCA 2008: a router has p ports, a - 1 cables to the other routers of its
    group and h cables to other groups; there are at most a h + 1 groups. With fewer groups, every two are
    joined by the same number of cables. Routing is minimal: to the router with the cable, over it, and on.
    """

    def __init__(
        self, ports: int, per_router: int, routers: int, global_links: int, ecmp: Ecmp = "destination"
    ) -> None:
        self.name, self.ports = "dragonfly", ports
        self._per_router, self._routers, self._h, self._ecmp = per_router, routers, global_links, ecmp
        self._groups = -(-ports // (per_router * routers))
        others = self._groups - 1
        if others > routers * global_links:
            raise TopologyError(
                f"dragonfly: {ports} ports make {self._groups} groups of {per_router * routers}; allowed: "
                f"{routers * global_links + 1}, which {global_links} global links of each of {routers} "
                "routers can join; write more of these or more ports per router"
            )
        self._between = routers * global_links // others if others else 0
        """Cables between two groups."""
        self.num_cables = self._groups * (routers * (routers - 1) + self._between * others) // 2

    def switches(self) -> Iterator[tuple[Node, int]]:
        """Yield every router, all in one tier."""
        for group in range(self._groups):
            for router in range(self._routers):
                yield _router((group, router)), 1

    def cables(self) -> Iterator[tuple[Node, Node, float]]:
        """Yield all pairs within a group; parallel cables between groups merge into one of total width."""
        for group in range(self._groups):
            for a in range(self._routers):
                for b in range(a + 1, self._routers):
                    yield _router((group, a)), _router((group, b)), 1.0
        widths: dict[tuple[Node, Node], float] = {}
        for a, b in product(range(self._groups), repeat=2):
            for number in range(self._between if a < b else 0):
                ends = self._end(a, b, number), self._end(b, a, number)
                widths[ends] = widths.get(ends, 0.0) + 1.0
        for (one, other), width in widths.items():
            yield one, other, width

    def above(self, port: int) -> Node:
        """Return the router that a port is plugged into."""
        return _router(self._place(port))

    def way(self, src: int, dst: int) -> list[Node] | None:
        """Route over at most one cable in either group and one between them."""
        here, there = self._place(src), self._place(dst)
        nodes = [_router(here)]
        if here[0] != there[0]:
            number = turn(self._ecmp, src, dst) % self._between
            nodes += [self._end(here[0], there[0], number), self._end(there[0], here[0], number)]
        nodes.append(_router(there))
        return list(dict.fromkeys(nodes))

    def crossed(self, src: Ints, dst: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the cables of a route: at most one in either group, and one between them."""
        here, there = src // self._per_router, dst // self._per_router
        group, other = here // self._routers, there // self._routers
        out, into = there.copy(), there.copy()
        away = group != other
        if away.any():
            number = turns(self._ecmp, src, dst)[away] % np.uint64(self._between)
            out[away] = self._ends(group[away], other[away], number.astype(np.int64))
            into[away] = self._ends(other[away], group[away], number.astype(np.int64))
        for a, b in ((here, out), (out, into), (into, there)):
            moved = np.flatnonzero(a != b)
            yield moved, a[moved] * (self._groups * self._routers) + b[moved]

    def cable(self, number: int) -> Hop:
        """Return the two routers."""
        a, b = divmod(number, self._groups * self._routers)
        return _router(divmod(a, self._routers)), _router(divmod(b, self._routers))

    def _ends(self, group: Ints, other: Ints, number: Ints) -> Ints:
        """Compute `_end` of many cables, as numbers of routers."""
        channel = number * (self._groups - 1) + (other - group) % self._groups - 1
        routers: Ints = group * self._routers + channel // self._h
        return routers

    def _place(self, port: int) -> tuple[int, int]:
        return divmod(port // self._per_router, self._routers)

    def _end(self, group: int, other: int, number: int) -> Node:
        """Return the router of a group that has one of the cables to another group."""
        channel = number * (self._groups - 1) + (other - group) % self._groups - 1
        return _router((group, channel // self._h))


def shape_of(hosts: int, dimensions: int) -> tuple[int, ...]:
    """Return the sides of the torus of ``hosts`` routers nearest to a square or a cube, longest first."""
    sides: list[int] = []
    for left in range(dimensions, 1, -1):
        side = round(hosts ** (1 / left))
        side = next(s for s in range(side + 1, 0, -1) if hosts % s == 0 and s**left <= hosts)
        sides.append(side)
        hosts //= side
    return tuple(sorted((*sides, hosts), reverse=True))


def _router(place: Sequence[int]) -> Node:
    return "router" + ".".join(map(str, place))
