"""The collectives, in nccl-tests' terms: the data each moves, and its bus bandwidth."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ringside.sim.libraries.experts.tokens import TokenPhase
from ringside.topologies.names import one_of


def _whole(ranks: int) -> float:
    return 1.0


def _others_share(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice_others_share(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class CollectiveKind:
    """One kind of collective.

    The data consist of blocks: one for all ranks, one per rank, or one per pair of ranks; ``blocks`` is that
    power of the number of ranks. All blocks together are nccl-tests' size times the number of ranks to the
    power ``spaces``. ``busbw_factor`` gives bus over algorithm bandwidth for n ranks (nccl-tests,
    doc/PERFORMANCE.md).
    """

    blocks: int
    spaces: int
    reduces: bool
    busbw_factor: Callable[[int], float]


KINDS: dict[str, CollectiveKind] = {
    "all_reduce": CollectiveKind(0, 0, True, _twice_others_share),
    "all_gather": CollectiveKind(1, 0, False, _others_share),
    "reduce_scatter": CollectiveKind(1, 0, True, _others_share),
    "broadcast": CollectiveKind(0, 0, False, _whole),
    "reduce": CollectiveKind(0, 0, True, _whole),
    "gather": CollectiveKind(1, 0, False, _others_share),
    "scatter": CollectiveKind(1, 0, False, _others_share),
    "all_to_all": CollectiveKind(2, 1, False, _others_share),
    "sendrecv": CollectiveKind(1, 1, False, _whole),
}

ITEMSIZE = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "int64": 8,
    "int8": 1,
    "uint8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "complex128": 16,
    "complex64": 8,
    "int16": 2,
    "bool": 1,
}
"""Bytes per element, by PyTorch's name of the dtype."""

SHORT = {
    "fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16",
    "fp8": "float8_e4m3fn", "fp64": "float64", "double": "float64",
}  # fmt: skip
"""Other libraries' names of dtypes, which messages translate."""

MAX_SPACE = 2**62
"""Maximum bytes of one collective, all ranks together: larger offsets exceed 64-bit numbers."""

REDOPS = ("sum", "prod", "min", "max", "avg", "mulsum")
"""Reductions, by nccl-tests' names."""

_SPELLINGS = {kind.replace("_", ""): kind for kind in KINDS}


def kind_of(text: str) -> str:
    """Parse a kind: ``all_reduce``, ``AllReduce``, ``all_reduce_perf``, ``alltoall``."""
    bare = text.lower().removesuffix("_perf").replace("_", "").replace("-", "")
    if bare not in _SPELLINGS:
        raise ValueError(f"unknown collective {text!r}; write {one_of(KINDS, text)}")
    return _SPELLINGS[bare]


def itemsize(dtype: str) -> int:
    """Return the bytes per element of the type."""
    if dtype not in ITEMSIZE:
        raise ValueError(f"unknown dtype {dtype!r}; write {one_of(ITEMSIZE, SHORT.get(dtype, dtype))}")
    return ITEMSIZE[dtype]


def check_redop(redop: str) -> None:
    """Raise ValueError for an unknown reduction."""
    if redop not in REDOPS:
        raise ValueError(f"unknown reduction {redop!r}; write {one_of(REDOPS, redop)}")


Splits = tuple[tuple[int, ...], ...]
"""Elements by sender, then receiver."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective operation over ``ranks`` ranks.

    ``nbytes`` is nccl-tests' size: the buffer of one rank for all_reduce, broadcast, reduce, all_to_all and
    sendrecv; the total over all ranks for all_gather, reduce_scatter, gather and scatter. Parts begin at
    multiples of ``itemsize`` bytes, so that no element is split; ``dtype`` determines it, and a library that
    depends on types uses float32 by default. ``redop`` is the reduction, where there is one.

    ``splits`` make an all_to_all uneven: row by row the elements that each rank has for each other, as
    ``input_split_sizes`` of all_to_all_single state on every rank; `uneven` makes one. ``nbytes`` is then the
    largest send buffer, and a part of no elements need not arrive.

    ``tokens`` are those of experts, which a library of its own exchanges in place of an all_to_all;
    ``nbytes`` then has a copy for each expert.

    ``busbw_factor`` is bus over algorithm bandwidth; with uneven parts, the busiest port's bytes over
    ``nbytes``.

    The contributors to a block are a set of ranks, written as an integer whose bit r is rank r.
    """

    kind: str
    ranks: int
    nbytes: int
    itemsize: int = 1
    root: int = 0
    dtype: str | None = None
    redop: str = "sum"
    splits: Splits | None = None
    tokens: TokenPhase | None = None
    busbw_factor: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dtype is not None:
            object.__setattr__(self, "itemsize", self._itemsize(self.dtype))
        check_redop(self.redop)
        if self.kind not in KINDS:
            raise ValueError(f"unknown collective {self.kind!r}; write {one_of(KINDS, self.kind)}")
        if self.ranks < 1:
            raise ValueError(f"{self.ranks} ranks; write 1 or more")
        if self.nbytes < 0:
            raise ValueError(f"a size of {self.nbytes} bytes; write 0 or more")
        if self.itemsize < 1:
            raise ValueError(f"an itemsize of {self.itemsize} bytes; write 1 or more")
        if self.splits is not None:
            self._check_splits(self.splits)
        if self.space > MAX_SPACE:
            raise ValueError(
                f"{self.nbytes} bytes on {self.ranks} ranks are more than 4 EiB in all; write less"
            )
        if not 0 <= self.root < self.ranks:
            raise ValueError(f"root {self.root} is not a rank; allowed: 0 to {self.ranks - 1}")
        object.__setattr__(self, "busbw_factor", self._busbw_factor())

    def _itemsize(self, dtype: str) -> int:
        """Return the bytes per element of the type, which an itemsize other than the default must match."""
        size = itemsize(dtype)
        if self.itemsize not in (1, size):
            raise ValueError(f"itemsize is {self.itemsize} bytes, but {dtype} has {size}; remove one of them")
        return size

    @classmethod
    def uneven(cls, splits: Sequence[Sequence[int]], dtype: str = "float32") -> "Collective":
        """Return an all_to_all in which rank i has ``splits[i][j]`` elements for rank j."""
        rows = tuple(tuple(row) for row in splits)
        nbytes = max((sum(row) for row in rows), default=0) * itemsize(dtype)
        return cls("all_to_all", len(rows), nbytes, dtype=dtype, splits=rows)

    def _check_splits(self, splits: Splits) -> None:
        if self.kind != "all_to_all":
            raise ValueError(f"splits of {self.kind}; only all_to_all has them, leave them out")
        for rank, row in enumerate(splits):
            if len(row) != self.ranks or len(splits) != self.ranks:
                raise ValueError(
                    f"rank {rank} of {len(splits)} splits its data in {len(row)}; write a row for each of "
                    f"{self.ranks} ranks, with as many counts"
                )
            if min(row) < 0:
                raise ValueError(f"rank {rank} has {min(row)} elements for another; write 0 or more")
        most = max(map(sum, splits)) * self.itemsize
        if self.nbytes != most:
            raise ValueError(f"{self.nbytes} bytes, but with these splits a rank sends {most}; write {most}")

    def _busbw_factor(self) -> float:
        if self.splits is None:
            return KINDS[self.kind].busbw_factor(self.ranks)
        own = [row[rank] for rank, row in enumerate(self.splits)]
        sent = (sum(row) for row in self.splits)
        received = (sum(column) for column in zip(*self.splits, strict=True))
        busiest = max(all_ - kept for way in (sent, received) for all_, kept in zip(way, own, strict=True))
        return busiest * self.itemsize / self.nbytes if self.nbytes else 0.0

    @property
    def num_blocks(self) -> int:
        """The number of blocks."""
        return int(self.ranks ** KINDS[self.kind].blocks)

    @property
    def space(self) -> int:
        """Bytes of all blocks together."""
        if self.splits is not None:
            return sum(map(sum, self.splits)) * self.itemsize
        return int(self.nbytes * self.ranks ** KINDS[self.kind].spaces)

    def blocks_before(self, rank: int) -> range:
        """Return the blocks for which ``rank`` has its own contribution before the start."""
        match self.kind:
            case "all_reduce" | "reduce_scatter" | "reduce":
                return range(self.num_blocks)
            case "broadcast" | "scatter":
                return range(self.num_blocks if rank == self.root else 0)
            case "all_to_all":
                return range(rank * self.ranks, (rank + 1) * self.ranks)
        return range(rank, rank + 1)

    def blocks_after(self, rank: int) -> range:
        """Return the blocks that ``rank`` must hold at the end, with all their contributions."""
        match self.kind:
            case "all_reduce" | "broadcast" | "all_gather":
                return range(self.num_blocks)
            case "reduce" | "gather":
                return range(self.num_blocks if rank == self.root else 0)
            case "all_to_all":
                return range(rank, self.num_blocks, self.ranks)
            case "sendrecv":
                source = (rank - 1) % self.ranks
                return range(source, source + 1)
        return range(rank, rank + 1)

    def start(self, rank: int) -> Iterator[tuple[int, int]]:
        """Return the blocks that ``rank`` holds before the start, with their contributors."""
        return ((block, 1 << rank) for block in self.blocks_before(rank))

    def goal(self, rank: int) -> Iterator[tuple[int, int]]:
        """Return the blocks that ``rank`` must hold at the end, with their contributors."""
        return ((block, self.contributors(block)) for block in self.blocks_after(rank))

    def contributors(self, block: int) -> int:
        """Return the set of contributors to a block."""
        if KINDS[self.kind].reduces:
            return (1 << self.ranks) - 1
        if self.kind in ("broadcast", "scatter"):
            return 1 << self.root
        return 1 << (block // self.ranks if self.kind == "all_to_all" else block)
