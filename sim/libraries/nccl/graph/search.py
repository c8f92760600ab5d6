"""The graphs of a communicator's machine: stored for listed machines, and found by NCCL's own search.

On the machines whose graphs NCCL's compiled code printed (a test has them) it finds the same channels,
speeds, path classes and orders. Only CollNet is a plain rule: its chains are the trees, and it has one head
per network card. NCCL searches on one node and only checks whether there are others, so two nodes have the
graphs of 512. A search takes up to seconds, so the graphs of listed machines are stored beside this file:

    python -m ringside.sim.libraries.nccl.graph [NAME]

A speed is tried with increasingly weaker requirements: channels that differ, a plainer tree, worse paths
inside the node, worse paths to the network, another rail on the way out; then the next lower speed, down to
half of the best found. The solution with the highest total bandwidth wins, so four channels of 40 GB/s beat
two of 60. Few fast channels become twice the number at half the speed, and last the speed is raised while the
same number still fits (src/graph/search.cc, v2.30.7).
"""

import json
import pathlib
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from ringside.sim.libraries.nccl.constants import Constants
from ringside.sim.libraries.nccl.graph.channel_search import STEPS, STEPS_SAME_CHANNELS, ChannelSearch
from ringside.sim.libraries.nccl.graph.graph import (
    TREES,
    Graph,
    Graphs,
    Nodes,
    PathClass,
    Result,
    SearchChannel,
    SearchRequest,
    device,
    doubled,
)
from ringside.sim.libraries.nccl.graph.paths import Path, Paths, drawing, redrawn
from ringside.sim.libraries.nccl.graph.system import GB, System, listed_system, nics_used
from ringside.sim.libraries.nccl.releases import RELEASES, release_of

MAX_CHANNELS = 32
MAX_NVLS_HEADS = 32

_ALL_STEPS = 1 << 19
"""Steps of all passes together, after which NCCL takes the best so far."""


def search(system: System, nodes: int, gpus: int, release: str) -> Graphs:
    """Return the graphs of ``nodes`` nodes with ``gpus`` GPUs used in each, by a release of `RELEASES`."""
    if nodes > 1 and not system.nics:
        raise ValueError(f"{system.name} has no NIC, so {nodes} nodes cannot be joined; give it nics and nic")
    tables = RELEASES[release]
    reckoned = redrawn(system, nvlink=system.nvlink * _nvlink_then(system, tables))
    used = drawing(reckoned, gpus)
    tried = [round(speed * 1000) for speed in _speeds(tables, system.compute_capability, inter=nodes > 1)]
    machine = GraphSearch(Paths(used), tried, inter=nodes > 1)
    ring = machine.find("ring", 1, MAX_CHANNELS)
    assert ring is not None
    tree = machine.find("balanced_tree", ring.channels, ring.channels)
    results = {"ring": ring, "tree": tree, "nvls": machine.find("nvls", 1, MAX_NVLS_HEADS)}
    graphs = {name: _found_graph(result, used) for name, result in results.items() if result}
    if nodes > 1:
        graphs |= _collnet(system, gpus, tables, graphs["tree"])
    return Graphs.joined(graphs)


class GraphSearch:
    """The search on one machine; ``speeds`` are the MB/s that the release tries, highest first."""

    def __init__(self, paths: Paths, speeds: list[int], *, inter: bool) -> None:
        self._paths, self._speeds, self._inter = paths, speeds, inter
        self._search = ChannelSearch(paths, inter=inter)
        self._gpus = len(paths.nodes.of["gpu"])
        self._devices = len({id(device(gpu)) for gpu in paths.nodes.of["gpu"]})
        self._capability = min(gpu.capability for gpu in paths.nodes.of["gpu"])
        self._amd = paths.nodes.of["cpu"][0].maker == "amd"
        self._fastest, self._total = self._limits()
        self._inside = {path.kind for path in self._between()}
        self._outside = {path.kind for row in paths.out for path in row}

    def find(self, pattern: str, least: int, most: int) -> Result | None:
        """Return the channels of one pattern, from ``least`` to ``most``; ``None`` for impossible NVLS."""
        if pattern == "nvls":
            if not self._paths.nodes.of["nvs"] or self._capability < 90:
                return None
            most = min(most, self._gpus, MAX_NVLS_HEADS)
            least = least if self._inter else most
        if pattern == "ring" and least == 1 and self._two_islands():
            least = 2
        if self._gpus == 1 and pattern != "ring":
            pattern = "tree"
        kinds = min(self._inside, default=PathClass.LOC), min(self._outside, default=PathClass.PIX)
        speed = self._first_speed(pattern, least)
        same = pattern != "nvls"
        want = SearchRequest(
            pattern, speed, speed, kinds[0], kinds[1] if self._inter else PathClass.PIX, 0, same, least, most
        )
        result = self._lowered(want, Result(replace(want, intra=0, inter=0)))
        if not result.channels and pattern != "nvls":
            return self._plain(want)
        return self._raised(doubled(result, self._capability))

    def _plain(self, want: SearchRequest) -> Result:
        """Return NCCL's fallback: one slow channel in plain order."""
        slow = replace(want, intra=100, inter=100, type_intra=PathClass.SYS, type_inter=PathClass.SYS)
        ends = (0, 0) if self._inter else (-1, -1)
        return Result(slow, (tuple(range(self._gpus)),), (ends,))

    def _lowered(self, want: SearchRequest, best: Result) -> Result:
        """Try weaker requirements and lower speeds, until no better result is possible."""
        first, left = want, _ALL_STEPS
        known: dict[SearchRequest, int] = {}
        while True:
            left -= STEPS_SAME_CHANNELS if want.same_channels else STEPS
            alike = self._effective(want)
            if alike not in known:
                best, known[alike] = self._tried(want, alike, best)
            steps = known[alike]
            if steps < 0 or best.channels * best.request.inter >= self._total:
                return best
            if want.same_channels and not (self._amd and want.type_intra is PathClass.SYS):
                want = replace(want, same_channels=False)
                continue
            left += steps
            if left < 0 and best.channels:
                return best
            following = self._weaker(replace(want, same_channels=first.same_channels), first, best)
            if following is None:
                return best
            want = following

    def _tried(self, want: SearchRequest, alike: SearchRequest, best: Result) -> tuple[Result, int]:
        """Run a pass; if no result could be better, skip it and count its steps as used."""
        return (best, 0) if self._search.hopeless(alike, best) else self._search.run(want, best)

    def _weaker(self, want: SearchRequest, first: SearchRequest, best: Result) -> SearchRequest | None:
        """Return the next weaker requirement, in NCCL's order; ``None`` if it should try lower speeds."""
        has_channels = best.channels > 0
        if self._capability >= 90 and want.pattern == "balanced_tree":
            return replace(want, pattern="tree")
        want = replace(want, pattern=best.request.pattern)
        worst = want.type_inter if self._inter else max(self._inside, default=PathClass.SYS)
        if want.type_intra < worst and (not has_channels or want.type_intra < best.request.type_intra):
            return replace(want, type_intra=PathClass(want.type_intra + 1))
        want = replace(want, type_intra=first.type_intra)
        if self._inter and want.type_inter < self._worst_way_out():
            near = want.type_inter < PathClass.PXN
            if not has_channels or near or want.type_inter < best.request.type_inter:
                return replace(want, type_inter=PathClass(want.type_inter + 1))
        want = replace(want, type_inter=first.type_inter)
        rails = len(self._paths.nodes.of["net"]) > 1 and want.pattern in ("ring", "balanced_tree")
        if rails and self._inter and want.cross_nic == 0:
            return replace(want, cross_nic=2)
        want = replace(want, cross_nic=0)
        lower = [speed for speed in self._speeds if speed < want.inter]
        if lower and (not has_channels or lower[0] / best.request.inter > 0.49):
            return replace(want, intra=lower[0], inter=lower[0])
        return None

    def _raised(self, best: Result) -> Result:
        """Try higher speeds: of both sides for rings, between nodes for NVLS, inside them for trees."""
        if not best.channels:
            return best
        speed = next((s for s in self._speeds if s <= best.request.inter), self._speeds[-1])
        want = replace(best.request, intra=speed, inter=speed, min_channels=best.channels)
        steps = -1
        while steps and speed != self._speeds[0]:
            higher = self._speeds[self._speeds.index(speed) - 1]
            nvls, tree = want.pattern == "nvls", want.pattern in TREES
            if nvls and want.inter == best.request.inter < 2 * want.intra:
                want = replace(want, inter=higher, max_channels=best.channels)
            elif tree and want.intra == best.request.intra < 2 * want.inter:
                want = replace(want, intra=higher)
            elif not nvls and not tree:
                want = replace(want, intra=higher, inter=higher)
            else:
                break
            speed = higher
            best, steps = self._search.run(want, best)
        return best

    def _effective(self, want: SearchRequest) -> SearchRequest:
        """Return the request with classes lowered to existing ones: equal requests find the same."""
        inside = max((kind for kind in self._inside if kind <= want.type_intra), default=want.type_intra)
        outside = max((kind for kind in self._outside if kind <= want.type_inter), default=PathClass.LOC)
        return replace(want, type_intra=inside, type_inter=outside)

    def _first_speed(self, pattern: str, least: int) -> int:
        spread = self._devices > 1 and pattern != "ring"
        total = self._total * self._devices / (self._devices - 1) if spread else self._total
        fitting = (s for s in self._speeds if s <= self._fastest and s * least <= total)
        return next(fitting, self._speeds[-1])

    def _worst_way_out(self) -> PathClass:
        return PathClass.SYS if self._capability < 90 else max(self._outside, default=PathClass.SYS)

    def _between(self) -> list[Path]:
        return [p for a, row in enumerate(self._paths.gpus) for b, p in enumerate(row) if a != b]

    def _limits(self) -> tuple[int, int]:
        """Return the MB/s of the best relevant path, and of all links of one GPU."""
        if not self._inter and self._gpus == 1:
            return 5_000_000, 5_000_000
        paths = [path for row in self._paths.out for path in row] if self._inter else self._between()
        paths = [path for path in paths if path.kind is not PathClass.LOC]
        links = [device(gpu).links for gpu in self._paths.nodes.of["gpu"]]
        nvlink = [sum(link.bandwidth for link in of if link.kind is PathClass.NVL) for of in links]
        slots = [link.bandwidth for of in links for link in of if link.kind is PathClass.PIX]
        fastest = max((path.bandwidth for path in paths if path.links), default=0.0)
        return round(fastest / 1e6), round(max([*nvlink, *slots]) / 1e6)

    def _two_islands(self) -> bool:
        """Return whether NVLink joins the GPUs to two groups; a tree between them needs two channels."""
        island = list(range(self._gpus))
        for a, row in enumerate(self._paths.gpus):
            for b in range(a + 1, self._gpus):
                if row[b].kind is PathClass.NVL:
                    island[b] = island[a]
        return sum(island.count(first) > 1 for first in set(island)) == 2


def _nvlink_then(system: System, tables: Constants) -> float:
    """Return a release's rate of an NVLink, from the newest release's."""
    then, now = tables.nvlink_gbps, system.nvlink_rate
    known = [first for first in then if first <= system.compute_capability]
    return then[max(known)] * GB / now if known and now else 1.0


def _found_graph(result: Result, nodes: Nodes) -> Graph:
    """Return a search result in bytes/s, its GPUs by local rank and its ports by number."""
    ranks = sorted(gpu.rank for gpu in nodes.of["gpu"])
    local = [ranks.index(gpu.rank) for gpu in nodes.of["gpu"]]
    ports = sorted(net.dev for net in nodes.of["net"])
    number = [ports.index(net.dev) for net in nodes.of["net"]]
    want = result.request
    order = tuple(
        SearchChannel(
            tuple(local[gpu] for gpu in gpus if gpu >= 0), tuple(number[port] for port in ends if port >= 0)
        )
        for gpus, ends in zip(result.gpus, result.ports, strict=True)
    )
    return Graph(
        want.pattern,
        result.channels,
        want.intra * 1e6,
        want.inter * 1e6,
        want.type_intra,
        want.type_inter,
        want.cross_nic,
        want.same_channels,
        result.latency_us,
        order,
    )


def _collnet(system: System, gpus: int, tables: Constants, tree: Graph) -> dict[str, Graph]:
    tried = _speeds(tables, system.compute_capability, inter=True)
    speed = next((s for s in tried if s * GB <= system.nic_path), tried[-1]) * GB
    direct = Graph("collnet_direct", nics_used(system, gpus), speed, speed, tree.type_intra, PathClass.PIX)
    return {"collnet_direct": direct, "collnet_chain": tree}


def _speeds(tables: Constants, capability: int, *, inter: bool) -> tuple[float, ...]:
    """Return the GB/s that a release's search tries for GPUs of a compute capability, highest first."""
    lists = tables.between if inter else tables.inside
    return lists[max(first for first in lists if first <= capability)]


KEPT = pathlib.Path(__file__).parent / "kept"


@cache
def graphs(system: System, nodes: int, gpus: int, version: str) -> Graphs:
    """Return the graphs of ``nodes`` machines with ``gpus`` GPUs of each in use, for a release of NCCL."""
    nodes, release = min(nodes, 2), release_of(version)
    if gpus == system.ranks and system == listed_system(system.name):
        kept = _kept(system.name)
        number = kept["of"].get(f"{nodes} nodes", {}).get(release)
        if number is not None:
            return _read(kept["graphs"][number])
    return _searched(system, nodes, gpus, release)


_searched = cache(search)


def search_results(system: System) -> dict[str, Any]:
    """Return a machine's distinct graphs, and those that each release finds on 1 and 2 nodes."""
    different: list[Graphs] = []
    places: dict[str, dict[str, int]] = {}
    for nodes in (1, 2) if system.nics else (1,):
        if nodes * system.ranks == 1:
            continue
        for release in RELEASES:
            result = search(system, nodes, system.ranks, release)
            if result not in different:
                different.append(result)
            places.setdefault(f"{nodes} nodes", {})[release] = different.index(result)
    return {"of": places, "graphs": [_written(result) for result in different]}


@cache
def _kept(name: str) -> dict[str, Any]:
    path = KEPT / f"{name}.json"
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"of": {}}
    return kept


def _written(result: Graphs) -> dict[str, Any]:
    return {
        name: graph | {"type_intra": graph["type_intra"].name, "type_inter": graph["type_inter"].name}
        for name, graph in asdict(result).items()
        if graph
    }


def _read(kept: dict[str, Any]) -> Graphs:
    return Graphs(**{name: _kept_graph(**fields) for name, fields in kept.items()})


def _kept_graph(*, type_intra: str, type_inter: str, order: list[dict[str, list[int]]], **rest: Any) -> Graph:
    channels = (SearchChannel(tuple(one["gpus"]), tuple(one["nics"])) for one in order)
    return Graph(
        type_intra=PathClass[type_intra], type_inter=PathClass[type_inter], order=tuple(channels), **rest
    )
