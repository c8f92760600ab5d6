"""What NCCL's search asks for and finds, the input of its tuner: number of channels, bandwidth, paths."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum


class PathClass(IntEnum):
    """The worst hop of a path, best class first (src/graph/topo.h, v2.30)."""

    LOC = 0
    NVL = 1
    NVB = 2
    C2C = 3
    PIX = 4
    PXB = 5
    P2C = 6
    PXN = 7
    PHB = 8
    SYS = 9
    NET = 10
    DIS = 11


PATTERNS = ("balanced_tree", "split_tree", "tree", "ring", "nvls", "collnet_direct")
"""The shapes that NCCL searches for; pattern i is NCCL's number i + 1."""


@dataclass(frozen=True, slots=True)
class SearchChannel:
    """One search channel inside a node: GPUs by local index in order; NICs in and out, if any."""

    gpus: tuple[int, ...]
    nics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """One search result, the same on every node.

    ``channels`` counts search channels, before the connect step doubles them. ``bw_intra`` and
    ``bw_inter`` are bytes/s of one channel, inside a node and between nodes; ``latency_inter_us``
    is what the network device reports (0 for NCCL's own InfiniBand and socket transports).
    ``cross_nic`` 2 means that a ring leaves a node by another rail than it entered. ``order`` is
    empty where only the numbers are known.
    """

    pattern: str
    channels: int
    bw_intra: float
    bw_inter: float
    type_intra: PathClass
    type_inter: PathClass
    cross_nic: int = 0
    same_channels: bool = False
    latency_inter_us: float = 0.0
    order: tuple[SearchChannel, ...] = ()


@dataclass(frozen=True, slots=True)
class Graphs:
    """All search results of a communicator; ``None`` if nothing was found or requested."""

    ring: Graph
    tree: Graph
    nvls: Graph | None = None
    collnet_direct: Graph | None = None
    collnet_chain: Graph | None = None

    @classmethod
    def joined(cls, results: Mapping[str, Graph]) -> "Graphs":
        """Return search results by name, with ring and tree cut to their common channels, as in NCCL."""
        channels = min(results["ring"].channels, results["tree"].channels)
        level = {name: _cut(results[name], channels) for name in ("ring", "tree")}
        others = {name: graph for name, graph in results.items() if name not in level and graph.channels}
        return cls(**level, **others)


def _cut(graph: Graph, channels: int) -> Graph:
    return replace(graph, channels=channels, order=graph.order[:channels])


TREES = ("balanced_tree", "split_tree", "tree")


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The aim of a pass: speeds are MB/s of one channel, classes the worst that are allowed."""

    pattern: str
    intra: int
    inter: int
    type_intra: PathClass
    type_inter: PathClass
    cross_nic: int
    same_channels: bool
    min_channels: int
    max_channels: int


@dataclass(frozen=True, slots=True)
class Result:
    """Channels found for a request: GPUs in order and ports in and out, by place, one entry per channel."""

    request: SearchRequest
    gpus: tuple[tuple[int, ...], ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    hops: int = 0
    latency_us: float = 0.0

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.gpus)


def better(result: Result, best: Result, gpus: int) -> bool:
    """Return whether a result is better than the best so far, on a node with this number of GPUs."""
    want, known = result.request, best.request
    if result.channels < want.min_channels:
        return False
    if want.pattern == "nvls":
        more = best.channels < result.channels <= gpus
        return more or result.channels * want.inter > best.channels * known.inter
    total, before = result.channels * want.intra, best.channels * known.intra
    if total != before:
        return total > before
    same = (want.pattern, want.cross_nic) == (known.pattern, known.cross_nic)
    return same and result.hops < best.hops


def doubled(result: Result, capability: int) -> Result:
    """Return twice the channels at half the speed if NCCL prefers these to few fast channels."""
    speed, channels = result.request.intra, result.channels
    enough = capability > 80 and speed < 50_000 and channels > 4
    if not channels or result.request.pattern == "nvls" or speed < 25_000 or enough:
        return result
    count = min(2 * channels, result.request.max_channels)
    parts = -(-count // channels)
    request = replace(
        result.request, intra=result.request.intra // parts, inter=result.request.inter // parts
    )
    return replace(
        result,
        request=request,
        gpus=(result.gpus * 2)[:count],
        ports=(result.ports * 2)[:count],
    )
