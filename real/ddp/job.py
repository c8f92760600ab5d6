"""What a measurement of DistributedDataParallel is to do: handed to every rank as a JSON file."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from real.collective.job import MAX_ITERATIONS
from sim.training.ddp.buckets import Bucketing
from sim.training.ddp.job import GLOO_WORKERS, STEADY


def is_model(text: str) -> bool:
    """Whether the text is `real.model.user_model`'s ``FILE.py:NAME``, and not a workload."""
    return text.partition(":")[0].endswith(".py")


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpJob:
    """So many steps of a model, after ``warmup`` untimed ones.

    ``model`` is `real.model.user_model`'s ``FILE.py:NAME``; without one, ``workload``, which is
    `sim.workload.file`'s text, is trained by layers that sleep. ``workers`` are the threads of the Gloo
    process group that reduces the buckets, so as many collectives run at once. ``timeout_s`` is how
    long a rank waits for another. ``all_reduces`` are sizes, in bytes, of all-reduces to time alone
    before the steps. With ``realtime`` ranks run before all ordinary programs of the
    machine, in turn (SCHED_RR).
    """

    workload: str = ""
    model: str = ""
    backend: str = "gloo"
    bucketing: Bucketing = field(default_factory=Bucketing)
    gradient_as_bucket_view: bool = False
    workers: int = GLOO_WORKERS
    iterations: int = 5
    warmup: int = STEADY - 1
    timeout_s: float = 60.0
    all_reduces: tuple[int, ...] = ()
    realtime: bool = False

    def __post_init__(self) -> None:
        if self.backend not in ("gloo", "nccl"):
            raise ValueError(f"{self.backend!r} is no known backend; write gloo or nccl")
        if not 0 < self.timeout_s < 1e6:
            raise ValueError(f"a timeout of {self.timeout_s} s; write for example 60")
        if self.workers < 1:
            raise ValueError(f"{self.workers} workers; write 1, or 2 as Gloo has")
        if not 1 <= self.iterations <= MAX_ITERATIONS or self.warmup < STEADY - 1:
            raise ValueError(
                f"{self.iterations} iterations after {self.warmup} warm-up ones; write 1 to "
                f"{MAX_ITERATIONS} after {STEADY - 1}, in which the buckets find their final shape"
            )

    def write(self, path: Path) -> None:
        """Write the job for `read`."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "DdpJob":
        """The job in the file."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**content, "bucketing": Bucketing(**content["bucketing"])})
