"""DeepSpeed's ZeRO configuration, with its defaults."""

from dataclasses import dataclass
from math import inf

from ringside.sim.collective import ITEMSIZE


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
