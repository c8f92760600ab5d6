"""Partition of whole parameters among ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ringside.sim.collective import ITEMSIZE
from ringside.sim.training.fsdp_policy import BUFFERS, COPIES, OPTIMIZER
from ringside.sim.training.memory.optimizers import Optimizer
from ringside.sim.training.stage import RankList
from ringside.sim.workload.workload import Tensor


def dealt(tensors: Sequence[Tensor], ranks: int) -> tuple[tuple[Tensor, ...], ...]:
    """Return each rank's tensors: the largest first, each to the first rank with the fewest elements.

    As in torch's ZeroRedundancyOptimizer (`_partition_parameters`, PyTorch 2.13) and InternEvo's hybrid ZeRO
    (`_partition_param_list`). Some ranks may get none.
    """
    own: list[list[Tensor]] = [[] for _ in range(ranks)]
    counts = [0] * ranks
    for tensor in sorted(tensors, key=lambda one: one.count, reverse=True):
        rank = counts.index(min(counts))
        own[rank].append(tensor)
        counts[rank] += tensor.count
    return tuple(map(tuple, own))


def most(parts: Sequence[Sequence[Tensor]]) -> int:
    """Return the elements of the rank with the largest part, for which all others wait."""
    return max((sum(tensor.count for tensor in own) for own in parts), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroPolicy:
    """Parameters and gradients are of type ``dtype``; counts are of elements, under DeepSpeed's own names.

    Copies take the bytes that they read and write over ``memory_bandwidth`` (bytes/s).
    """

    dtype: str = "bfloat16"
    reduce_bucket_size: int = 500_000_000
    prefetch_bucket_size: int = 50_000_000
    param_persistence_threshold: int = 100_000
    max_live_parameters: int = 1_000_000_000
    max_reuse_distance: int = 1_000_000_000
    memory_bandwidth: float = inf

    def __post_init__(self) -> None:
        if self.dtype not in ITEMSIZE:
            raise ValueError(f"unknown dtype {self.dtype!r}; write one of {', '.join(ITEMSIZE)}")
        for name in ("reduce_bucket_size", "prefetch_bucket_size", "max_live_parameters"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}; write 1 element or more")
        if not self.memory_bandwidth > 0:
            raise ValueError(f"a memory bandwidth of {self.memory_bandwidth} bytes/s; write more than 0")

    @property
    def itemsize(self) -> int:
        """Bytes of a parameter, and of a gradient."""
        return ITEMSIZE[self.dtype]

    def seconds(self, nbytes: float) -> float:
        """Return the time to read and write ``nbytes`` bytes in all."""
        return nbytes / self.memory_bandwidth


MASTER = "float32"
"""The type of the optimizer's copies, and of its states."""


def hold_states(
    rank: RankList, optimizer: Optimizer, elements: int, *, matrices: int = 0, copies: bool = True
) -> None:
    """Hold the optimizer's states of ``elements`` parameters, and ``copies`` of these in float32.

    Some are elements of ``matrices``, of which it may keep others.
    """
    rank.take(COPIES, elements * ITEMSIZE[MASTER] if copies else 0)
    rank.take(OPTIMIZER, optimizer.kept(elements, matrices) * ITEMSIZE[MASTER])


def step_on(rank: RankList, policy: ZeroPolicy, elements: int, seconds: float) -> None:
    """Cast the gradients of ``elements`` parameters, update in ``seconds``, cast the parameters back."""
    cast = policy.seconds(elements * (policy.itemsize + ITEMSIZE[MASTER]))
    rank.take(BUFFERS, elements * ITEMSIZE[MASTER])
    rank.compute(cast, "gradients of the own part", "copy")
    rank.compute(seconds, "optimizer", "optimizer")
    rank.compute(cast, "parameters of the own part", "copy")
    rank.give(BUFFERS, elements * ITEMSIZE[MASTER])
