"""Request and result of a pass of NCCL's search, and the better of two results."""

from dataclasses import dataclass, replace

from ringside.sim.libraries.nccl.graph.graph import PathClass

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
