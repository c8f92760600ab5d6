"""The paths on which a search takes bandwidth, and the free bandwidth of every link meanwhile."""

from dataclasses import dataclass, field

from ringside.sim.libraries.nccl.graph.graph import Link, Node, PathClass
from ringside.sim.libraries.nccl.graph.paths import Path, Paths


@dataclass(slots=True)
class Way:
    """A path as the links that it takes bandwidth from, each with its fraction of it."""

    kind: PathClass
    back: PathClass
    hops: int
    takes: list[tuple[int, int, int]] = field(default_factory=list)
    known: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def shares(self, speed: int) -> tuple[tuple[int, int], ...]:
        """Return a channel's bandwidth on each link at a given speed."""
        shares = self.known.get(speed)
        if shares is None:
            sums: dict[int, int] = {}
            for link, numerator, denominator in self.takes:
                sums[link] = sums.get(link, 0) + speed * numerator // denominator
            shares = self.known[speed] = tuple(sums.items())
        return shares


class Ways:
    """All paths between GPUs, ports and the switch, by place; whole MB/s, as fine as NCCL rounds.

    ``both`` says that the way back must be of an allowed class too; ``hops`` counts the links in use.
    """

    def __init__(self, paths: Paths) -> None:
        self.free: list[int] = []
        self.hops = 0
        self.both = False
        self._numbers: dict[int, int] = {}
        self._gpus, nets = paths.nodes.of["gpu"], paths.nodes.of["net"]
        table = paths.gpus
        self.between = [
            [self._way(path, self._gpus[a], table[b][a].kind) for b, path in enumerate(row)]
            for a, row in enumerate(table)
        ]
        self.out = [
            [self._way(path, self._gpus[g], paths.back[n][g].kind) for n, path in enumerate(row)]
            for g, row in enumerate(paths.out)
        ]
        self.back = [
            [self._way(path, nets[n], paths.out[g][n].kind) for g, path in enumerate(row)]
            for n, row in enumerate(paths.back)
        ]
        self.up: list[Way] = []
        self.down: list[Way] = []
        if paths.nodes.of["nvs"]:
            switch = paths.nodes.of["nvs"][0]
            self.up = [self._way(path, self._gpus[g], path.kind) for g, path in enumerate(paths.up)]
            self.down = [self._way(path, switch, path.kind) for path in paths.down]

    def most(self, speed: int, worst: PathClass, *, closed: bool) -> int:
        """Return the maximum channels of a speed that the links at the GPUs can carry."""
        links = [[link for link in gpu.links if link.to is not gpu] for gpu in self._gpus]
        if worst <= PathClass.NVB:
            links = [[link for link in of if link.kind <= PathClass.NVL] for of in links]
        out = [round(sum(link.bandwidth for link in of) / 1e6) for of in links]
        if len(out) == 1:
            return 1 << 30
        return min(out) // speed if closed else sum(out) // ((len(out) - 1) * speed)

    def fewest_hops(self, *, closed: bool, inter: bool) -> int:
        """Return the minimum number of links that a channel crosses."""
        count = len(self._gpus)
        inside = min(
            (way.hops for a, row in enumerate(self.between) for b, way in enumerate(row) if a != b),
            default=0,
        )
        outside = [min(way.hops for row in table for way in row) for table in (self.back, self.out) if inter]
        return inside * (count if closed else count - 1) + sum(outside)

    def take(self, way: Way, speed: int, worst: PathClass, *, single: bool = True) -> bool:
        """Reserve bandwidth on every link of a path; return whether there was enough of an allowed class."""
        if way.kind is PathClass.DIS or (single and way.kind > worst):
            return False
        if single and self.both and way.back > worst:
            return False
        free, shares = self.free, way.shares(speed)
        for link, share in shares:
            if free[link] < share:
                return False
        for link, share in shares:
            free[link] -= share
        self.hops += way.hops
        return True

    def give(self, way: Way, speed: int) -> None:
        """Release the bandwidth."""
        free = self.free
        for link, share in way.shares(speed):
            free[link] += share
        self.hops -= way.hops

    def _way(self, path: Path, start: Node, back: PathClass) -> Way:
        way = Way(path.kind, back, len(path.links))
        through_intel = any(link.to.kind == "cpu" and link.to.maker == "intel" for link in path.links)
        heavy = path.kind is PathClass.PHB and start.kind == "gpu" and through_intel
        node = start
        for link in path.links:
            pci = heavy and link.kind is PathClass.PIX
            way.takes.append((self._number(link), 6 if pci else 1, 5 if pci else 1))
            old = link.to.kind in ("gpu", "dev") and link.to.capability < 80
            if old and link.kind is not PathClass.LOC and start.kind != "gpu":
                way.takes.append((self._number(_reverse(node, link)), 1, 8))
            if link.to.kind == "cpu" and link.to.maker == "power" and link.kind is PathClass.NVL:
                way.takes.append((self._number(_reverse(node, link)), 1, 1))
            node = link.to
        return way

    def _number(self, link: Link) -> int:
        if id(link) not in self._numbers:
            self._numbers[id(link)] = len(self.free)
            self.free.append(round(link.bandwidth / 1e6))
        return self._numbers[id(link)]


def _reverse(node: Node, link: Link) -> Link:
    return next(back for back in link.to.links if back.to is node and back.kind is link.kind)
