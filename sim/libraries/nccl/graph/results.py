"""What a pass of NCCL's search looks for, what it finds, and which of two finds is better."""

from dataclasses import dataclass, replace

from ringside.sim.libraries.nccl.graph.graph import PathClass

TREES = ("balanced_tree", "split_tree", "tree")


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What a pass looks for: speeds are MB/s of one channel, classes the worst that are allowed."""

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
    """Channels found for a request: GPUs in order and ports in and out, by place, one entry a channel."""

    request: SearchRequest
    gpus: tuple[tuple[int, ...], ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    hops: int = 0
    latency_us: float = 0.0

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return len(self.gpus)


def better(found: Result, best: Result, gpus: int) -> bool:
    """Whether a result is worth more than the best so far, on a node with so many GPUs."""
    want, known = found.request, best.request
    if found.channels < want.min_channels:
        return False
    if want.pattern == "nvls":
        more = best.channels < found.channels <= gpus
        return more or found.channels * want.inter > best.channels * known.inter
    total, before = found.channels * want.intra, best.channels * known.intra
    if total != before:
        return total > before
    same = (want.pattern, want.cross_nic) == (known.pattern, known.cross_nic)
    return same and found.hops < best.hops


def doubled(result: Result, capability: int) -> Result:
    """Twice the channels at half the speed, where NCCL holds that few fast channels do worse."""
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
