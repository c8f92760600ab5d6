"""A measurement of DistributedDataParallel, which the launcher hands to every rank as a JSON file."""

from dataclasses import dataclass, field
from typing import ClassVar

from ringside.real.backends import ON_SOCKETS, UNDER_TORCHRUN
from ringside.real.collective.job import MAX_ITERATIONS, check_timeout
from ringside.real.launch.follow import RankJob
from ringside.sim.libraries.rules import GLOO
from ringside.sim.training.ddp.buckets import Bucketing, PowerSGD
from ringside.sim.training.ddp.job import STEADY
from ringside.sim.workload.workload import Layer, Tensor, Workload

HOOKS = ("allreduce", "powersgd")

MAX_START = 100
"""Iterations without compression before PowerSGD is measured."""


SLEEPING = "sleeping"
"""The name of the built-in model."""


def sleeping_layers(layers: int = 16, forward_s: float = 4e-3, backward_s: float = 25e-3) -> Workload:
    """Return the built-in model: equal layers of 0.5 MiB of parameters each."""
    return Workload(
        name=f"{layers} sleeping layers",
        parameters=tuple(Tensor(f"layer{i}.weight", 2**17, rows=512) for i in range(layers)),
        layers=tuple(Layer(f"layer{i}", (i,), forward_s, backward_s) for i in reversed(range(layers))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpJob(RankJob):
    """``iterations`` steps of a model after ``warmup`` untimed ones.

    ``model`` is `ringside.real.model.user_model`'s ``FILE.py:NAME``; without one, sleeping layers train
    ``workload``, text in the format of `ringside.sim.workload.file`. ``workers`` are the threads of the Gloo
    process group that reduces the buckets, one collective each. ``comm_hook`` is ``allreduce`` or
    ``powersgd``, which begins after its first iterations, all of them warm-up, plus one in which it creates
    its matrices. ``timeout_s`` is how long a rank waits for another. ``all_reduces`` are sizes, in bytes, of
    all-reduces to time alone before the steps. With ``realtime``, ranks run before all ordinary programs of
    the machine, in turn (SCHED_RR). Sleeping layers take a rank's ``slowdown`` times as long, and each pass
    of each layer a factor, lognormally distributed with ``sigma``, drawn from ``seed``.
    """

    worker: ClassVar[str] = "ringside.real.ddp.worker"

    workload: str = ""
    model: str = ""
    backend: str = "gloo"
    bucketing: Bucketing = field(default_factory=Bucketing)
    gradient_as_bucket_view: bool = False
    comm_hook: str = "allreduce"
    powersgd: PowerSGD = field(default_factory=PowerSGD)
    workers: int = GLOO.workers
    iterations: int = 5
    warmup: int = STEADY - 1
    all_reduces: tuple[int, ...] = ()
    realtime: bool = False
    slowdown: dict[int, float] = field(default_factory=dict)
    sigma: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.backend not in UNDER_TORCHRUN:
            raise ValueError(f"unknown backend {self.backend!r}; write {' or '.join(UNDER_TORCHRUN)}")
        check_timeout(self.timeout_s)
        if self.workers < 1:
            raise ValueError(f"{self.workers} workers; write 1, or 2, Gloo's default")
        if not 1 <= self.iterations <= MAX_ITERATIONS or self.warmup < STEADY - 1:
            raise ValueError(
                f"{self.iterations} iterations after {self.warmup} warm-up ones; write 1 to "
                f"{MAX_ITERATIONS} after {STEADY - 1}, during which DDP rebuilds its buckets"
            )

        if self.comm_hook not in HOOKS:
            raise ValueError(f"{self.comm_hook!r} cannot be measured; write one of {', '.join(HOOKS)}")
        if self.comm_hook == "powersgd":
            self._check_powersgd()

    def _check_powersgd(self) -> None:
        if self.backend not in ON_SOCKETS:
            raise ValueError(f"PowerSGD is measured over Gloo, and the backend is {self.backend}; write gloo")
        if self.workers < 2:
            raise ValueError("PowerSGD hangs with one worker, which waits for itself; write 2 or more")
        if self.powersgd.start > MAX_START:
            raise ValueError(
                f"PowerSGD begins after {self.powersgd.start} steps, which would all be run first; write "
                f"powersgd:start=2, or up to {MAX_START}"
            )

    @property
    def untimed(self) -> int:
        """Return the number of steps before the timed ones."""
        begins = self.powersgd.start + 1 if self.comm_hook == "powersgd" else 0
        return max(self.warmup, begins)
