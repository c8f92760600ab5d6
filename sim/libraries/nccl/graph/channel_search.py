"""NCCL's search for channels: depth first, each channel taking its bandwidth on every link it crosses.

One pass looks for the most channels of one speed and pattern that fit, over paths of allowed classes
(src/graph/search.cc, v2.30.7). The order of trials matters, since a pass stops after a number of steps:
nearest GPUs, neighbours behind an NVSwitch, and the channel before again. `search`
decides which passes run. Bandwidths are whole MB/s here, as fine as NCCL rounds.
"""

import sys
from collections.abc import Iterable
from itertools import zip_longest

from ringside.sim.libraries.nccl.graph.graph import (
    TREES,
    Node,
    PathClass,
    Result,
    SearchRequest,
    better,
    device,
)
from ringside.sim.libraries.nccl.graph.paths import Paths
from ringside.sim.libraries.nccl.graph.ways import Ways

STEPS = 1 << 14
STEPS_SAME_CHANNELS = 1 << 8
"""Maximum steps of a pass, and of one in which every channel must equal the first."""
_STEPS_IN_PCI_ORDER = 1 << 10

_PCI_ORDER, _LIKE_BEFORE = 1, 2
_FOUND = -1

_FRAMES = 20_000
"""The stack is as deep as channels x GPUs."""


class ChannelSearch:
    """The search on one machine, between nodes or within one."""

    def __init__(self, paths: Paths, *, inter: bool) -> None:
        self._paths = paths
        self._inter = inter
        self._gpus, self._nets = paths.nodes.of["gpu"], paths.nodes.of["net"]
        self._switched = bool(paths.nodes.of["nvs"])
        self._ways = Ways(paths)
        self._between, self._out, self._in = self._ways.between, self._ways.out, self._ways.back
        self._slots = [_slot(device(gpu)) for gpu in self._gpus]
        self._kinds = [[(_whole(path.bandwidth), len(path.links)) for path in row] for row in paths.gpus]
        self._alike = [len({*row[:a], *row[a + 1 :]}) <= 1 for a, row in enumerate(self._kinds)]
        self._rails = [
            [n for n, net in enumerate(self._nets) if (net.asic, net.port) == (own.asic, own.port)]
            for own in self._nets
        ]
        self._near = [paths.nearest_gpus(port) for port in range(len(self._nets))]
        self._choices: dict[tuple[int, int, int], list[int]] = {}
        self._ports_by_class: dict[tuple[int, int], list[int]] = {}

    def run(self, request: SearchRequest, best: Result) -> tuple[Result, int]:
        """Return the better of ``best`` and the result, and the steps left: 0 if it gave up, -1 if done."""
        self._want, self._best = request, best
        self._ways.both = request.pattern in TREES
        self._peers = [self._neighbours(gpu) for gpu in range(len(self._gpus))] if self._switched else []
        self._steps = STEPS_SAME_CHANNELS if request.same_channels else STEPS
        self._port_free = [round(net.bandwidth / 1e6) for net in self._nets]
        self._orders: list[list[int]] = []
        self._ends: list[list[int]] = []
        self._used: list[set[int]] = []
        self._ways.hops = 0
        self._latency = 0.0
        frames = sys.getrecursionlimit()
        sys.setrecursionlimit(max(frames, _FRAMES))
        try:
            self._next_channel()
        finally:
            sys.setrecursionlimit(frames)
        return self._best, self._steps

    def hopeless(self, request: SearchRequest, best: Result) -> bool:
        """Return whether the machine's links and ports allow no better result than ``best``."""
        if request.pattern == "nvls" or not request.intra:
            return False
        closed = request.pattern == "ring" and not self._inter
        most = min(request.max_channels, self._ways.most(request.intra, request.type_intra, closed=closed))
        if self._inter and request.inter >= 1000:
            taken = request.inter // 1000 * 1000
            rails = {(net.asic, net.port): round(net.bandwidth / 1e6) for net in self._nets}
            most = min(most, sum(free // taken for free in rails.values()))
        total = best.channels * best.request.intra
        if most * request.intra != total:
            return most * request.intra < total
        return most * self._ways.fewest_hops(closed=closed, inter=self._inter) >= best.hops

    def _next_channel(self) -> None:
        number = len(self._orders)
        self._orders.append([-1] * len(self._gpus))
        self._ends.append([-1, -1])
        self._used.append(set())
        if self._inter:
            self._from_port(number)
        else:
            self._from_gpu(number)
        self._orders.pop()
        self._ends.pop()
        self._used.pop()

    def _from_gpu(self, number: int) -> None:
        want = self._want
        close = len(self._gpus) - 1 if want.pattern == "ring" else -1
        if want.pattern == "nvls":
            self._try_gpu(None, number, 0, -1, -1, 0)
            return
        if number == 0:
            self._try_gpu(None, 0, 0, -1, close, _PCI_ORDER)
        else:
            self._try_gpu(None, self._orders[number - 1][0], 0, -1, close, _LIKE_BEFORE)
        if number == 0 or not want.same_channels:
            for gpu in range(len(self._gpus)):
                self._try_gpu(None, gpu, 0, -1, close, 0)

    def _from_port(self, number: int) -> None:
        want = self._want
        leave = {"ring": len(self._gpus) - 1, "split_tree": 1}.get(want.pattern, 0)
        taken = want.inter // 1000 * 1000
        nets = self._ports(want.type_inter, -1)
        tried = False
        for place in range(len(nets)):
            if want.pattern == "nvls" and tried:
                break
            port = nets[(number + place) % len(nets)]
            if self._port_free[port] < taken:
                continue
            odd = want.pattern == "ring" and want.cross_nic == 2 and number % 2
            if odd and port != self._ends[number - 1][1]:
                continue
            self._ends[number][0] = port
            self._latency = self._nets[port].latency_us
            for other in self._rails[port]:
                self._port_free[other] -= taken
            if want.pattern == "nvls":
                tried |= self._try_head(number, port, leave, len(nets))
            else:
                self._try_ring_or_tree(number, port, leave)
            for other in self._rails[port]:
                self._port_free[other] += taken

    def _try_head(self, number: int, port: int, leave: int, ports: int) -> bool:
        head = self._paths.gpu_of[port]
        if number >= ports or head < 0 or any(order[0] == head for order in self._orders[:number]):
            return False
        self._try_gpu(port, head, 0, leave, -1, 0)
        return True

    def _try_ring_or_tree(self, number: int, port: int, leave: int) -> None:
        if number and self._want.same_channels:
            self._try_gpu(port, self._orders[number - 1][0], 0, leave, -1, _LIKE_BEFORE)
            return
        if number == 0 and not self._switched:
            steps, self._steps = self._steps, _STEPS_IN_PCI_ORDER
            self._try_gpu(port, 0, 0, leave, -1, _PCI_ORDER)
            self._steps = _FOUND if self._steps == _FOUND else steps
        beside = self._paths.gpu_of[port]
        near = [gpu for gpu in self._near[port] if gpu != beside]
        for gpu in [beside, *near] if beside >= 0 else near:
            self._try_gpu(port, gpu, 0, leave, -1, 0)

    def _try_gpu(
        self, port: int | None, gpu: int, place: int, leave: int, close: int, forced: int, since: int = -1
    ) -> None:
        """Extend a channel to a GPU: from a port, from the GPU ``since``, or as the first."""
        if port is not None:
            way, speed, worst = self._in[port][gpu], self._want.inter, self._want.type_inter
        elif since >= 0:
            way, speed, worst = self._between[since][gpu], self._want.intra, self._want.type_intra
        else:
            way = None
        if way is not None and not self._ways.take(way, speed, worst):
            return
        used = self._used[-1]
        mark = gpu not in used
        (used.add if mark else used.discard)(gpu)
        self._at_gpu(gpu, place, leave, close, forced)
        (used.discard if mark else used.add)(gpu)
        if way is not None:
            self._ways.give(way, speed)

    def _at_gpu(self, gpu: int, place: int, leave: int, close: int, forced: int) -> None:
        if self._steps <= 0:
            return
        self._steps -= 1
        count = len(self._gpus)
        if place == count:
            self._complete()
            return
        number = len(self._orders) - 1
        self._orders[number][place] = gpu
        if place == leave:
            self._to_port(gpu, place, close, forced)
        elif self._want.pattern == "nvls":
            self._through_switch(gpu)
        elif place < count - 1:
            for following in self._following(gpu, place, leave, forced):
                self._try_gpu(None, following, place + 1, leave, close, forced, since=gpu)
        elif place == close:
            first = self._orders[number][0]
            way = self._between[gpu][first]
            if self._ways.take(way, self._want.intra, self._want.type_intra):
                self._at_gpu(first, place + 1, leave, -1, forced)
                self._ways.give(way, self._want.intra)
        else:
            self._at_gpu(gpu, count, -1, -1, forced)

    def _complete(self) -> None:
        result = Result(
            self._want,
            tuple(map(tuple, self._orders)),
            tuple((a, b) for a, b in self._ends),
            self._ways.hops,
            self._latency,
        )
        if better(result, self._best, len(self._gpus)):
            self._best = result
            if result.channels == self._want.max_channels:
                self._steps = _FOUND
        if result.channels < self._want.max_channels:
            self._next_channel()

    def _to_port(self, gpu: int, place: int, close: int, forced: int) -> None:
        want, ends = self._want, self._ends[-1]
        balanced = want.pattern == "balanced_tree"
        speed = want.inter // 2 if balanced else want.inter
        then = 1 if balanced and place == 0 else -1
        for port in self._ports(want.type_inter, gpu):
            if self._may_leave(port, place):
                way = self._out[gpu][port]
                if self._ways.take(way, speed, want.type_inter):
                    ends[1] = port
                    self._at_gpu(gpu, place, then, close, forced)
                    self._ways.give(way, speed)

    def _may_leave(self, port: int, place: int) -> bool:
        want, number, first = self._want, len(self._ends) - 1, self._ends[-1][0]
        if want.pattern == "tree" and port != first:
            return False
        if want.pattern == "ring" and want.cross_nic == 2:
            if number % 2 and port != self._ends[number - 1][0]:
                return False
        elif want.cross_nic == 0 and port not in self._rails[first]:
            return False
        return not (want.pattern == "balanced_tree" and place and port != self._ends[-1][1])

    def _through_switch(self, head: int) -> None:
        """Search a switch reduction: every GPU sends to the switch and receives from it, the head twice."""
        want = self._want
        taken = []
        for ways in (self._ways.down, self._ways.up):
            for gpu, way in enumerate(ways):
                speed = want.intra * (2 if gpu == head else 1)
                if not self._ways.take(way, speed, want.type_intra, single=gpu != head):
                    break
                taken.append((way, speed))
            else:
                continue
            break
        else:
            self._at_gpu(head, len(self._gpus), -1, -1, 0)
        for way, speed in reversed(taken):
            self._ways.give(way, speed)

    def _following(self, gpu: int, place: int, leave: int, forced: int) -> list[int]:
        """Yield the GPUs to try next, best first."""
        if forced == _PCI_ORDER:
            return [place + 1]
        if forced == _LIKE_BEFORE:
            return [self._orders[-2][place + 1]]
        used = self._used[-1]
        if self._switched:
            return [other for other in self._peers[gpu] if other not in used]
        direction = 0 if leave == -1 else 1 if leave == place + 1 else -1
        key = gpu, self._ends[-1][0] if direction else -1, direction
        if key not in self._choices:
            self._choices[key] = self._sorted(*key)
        free = [other for other in self._choices[key] if other not in used]
        if direction == -1 and (self._alike[gpu] or len({self._kinds[gpu][o] for o in free}) == 1):
            free.reverse()
        return free

    def _sorted(self, gpu: int, port: int, direction: int) -> list[int]:
        count, paths = len(self._gpus), self._paths

        def rating(distance: int) -> tuple[int, ...]:
            other = (gpu + distance) % count
            inside = paths.gpus[gpu][other]
            near = (-_whole(inside.bandwidth), len(inside.links), distance)
            if not direction:
                return near
            outside = paths.back[port][other]
            return -_whole(outside.bandwidth), -self._slots[other], len(outside.links), *near

        distances = [d for d in range(1, count) if paths.gpus[gpu][(gpu + d) % count].links]
        return [(gpu + distance) % count for distance in sorted(distances, key=rating)]

    def _neighbours(self, gpu: int) -> list[int]:
        """Return the GPUs before and after: behind a switch NCCL keeps to few peers."""
        count = len(self._gpus)
        before, after = (gpu - 1) % count, (gpu + 1) % count
        wanted = {"ring": [before, after], "tree": [after]}.get(self._want.pattern, [after, before])
        there = [other for other in wanted if other != gpu and self._paths.gpus[gpu][other].links]
        return list(dict.fromkeys(there))

    def _ports(self, worst: PathClass, gpu: int) -> list[int]:
        """Return the ports of a GPU, or of all (-1), their own first, then others by path class."""
        key = worst, gpu
        if key not in self._ports_by_class:
            gpus = range(len(self._gpus)) if gpu < 0 else [gpu]
            own = self._own_ports(gpus)
            rest = [
                port
                for kind in range(worst + 1)
                for g in gpus
                for port, path in enumerate(self._paths.out[g])
                if path.kind == kind
            ]
            self._ports_by_class[key] = list(dict.fromkeys(own + rest))
        return self._ports_by_class[key]

    def _own_ports(self, gpus: Iterable[int]) -> list[int]:
        """Yield the GPUs' own ports, one GPU's after another's; with several hosts first one of each GPU."""
        of = [self._paths.ports[gpu] for gpu in gpus]
        if self._gpus[-1].host == self._gpus[0].host:
            return [port for ports in of for port in ports]
        return [port for round_ in zip_longest(*of) for port in round_ if port is not None]


def _slot(gpu: Node) -> int:
    """Return the whole GB/s of a GPU's PCIe slot, -1 if it has none."""
    return next((_whole(link.bandwidth) for link in gpu.links if link.kind is PathClass.PIX), -1)


def _whole(bandwidth: float) -> int:
    return int(bandwidth // 1e9)
