"""A data-parallel job: DistributedDataParallel's arguments, and what a step costs beside its layers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

from ringside.sim.training.ddp.buckets import Bucketing, PowerSGD
from ringside.topologies.names import one_of

COMM_HOOKS = {"allreduce": None, "fp16_compress": "float16", "bf16_compress": "bfloat16", "powersgd": None}
"""Hooks of ``torch...ddp_comm_hooks``, and the dtype in which they reduce; None is the gradients' own."""

MAX_ACCUMULATION = 10_000
"""Maximum passes in a step."""

MAX_SLOWDOWN = 1_000_000
"""Maximum slowdown of a rank; anything slower counts as a hang."""

STEADY = 3
"""The first iteration, counted from 1, whose buckets all later ones keep with any flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallel:
    """The arguments of DistributedDataParallel that change what a step costs, and how the model is trained.

    ``accumulation`` is the number of forward and backward passes per step. Each backward reduces gradients,
    as torch does by default, or with ``no_sync`` only the last one. ``comm_hook`` is one of `COMM_HOOKS`;
    ``powersgd`` holds its arguments if that is the hook. ``iteration``, counted from 1, selects the bucket
    layout, which differs in the first ones (`ringside.sim.training.ddp.buckets`), and whether PowerSGD has
    begun; None means any later iteration. ``set_to_none`` is that of ``zero_grad``: gradients are then
    allocated again in every step and are views of no bucket.
    """

    bucketing: Bucketing = field(default_factory=Bucketing)
    gradient_as_bucket_view: bool = False
    broadcast_buffers: bool = True
    comm_hook: str | None = None
    accumulation: int = 1
    no_sync: bool = False
    iteration: int | None = None
    set_to_none: bool = True
    powersgd: PowerSGD = field(default_factory=PowerSGD)

    def __post_init__(self) -> None:
        if self.comm_hook is not None and self.comm_hook not in COMM_HOOKS:
            raise ValueError(f"unknown hook {self.comm_hook!r}; write {one_of(COMM_HOOKS, self.comm_hook)}")
        if not 1 <= self.accumulation <= MAX_ACCUMULATION:
            raise ValueError(f"{self.accumulation} accumulation steps; write 1 to {MAX_ACCUMULATION}")
        if self.iteration is not None and self.iteration < 1:
            raise ValueError(f"iteration {self.iteration}; iterations are counted from 1")

    @classmethod
    def parse(cls, hook: str | None, bucketing: Mapping[str, Any], **arguments: Any) -> "DataParallel":
        """Return the arguments of a hook as `parse_hook` reads it, of a `Bucketing`, and others."""
        name, powersgd = parse_hook(hook)
        return cls(comm_hook=name, powersgd=powersgd, bucketing=Bucketing(**bucketing), **arguments)

    @property
    def settled(self) -> int:
        """The iteration that selects the buckets."""
        return STEADY if self.iteration is None else self.iteration

    @property
    def compresses(self) -> bool:
        """Whether PowerSGD compresses; in its first iterations it only averages."""
        begun = self.iteration is None or self.iteration > self.powersgd.start
        return self.comm_hook == "powersgd" and begun


def parse_hook(text: str | None) -> tuple[str | None, PowerSGD]:
    """Parse a communication hook's name, and PowerSGD's arguments in ``powersgd:rank=4,start=10``."""
    if text is None:
        return None, PowerSGD()
    name, colon, figures = text.partition(":")
    if name not in COMM_HOOKS:
        raise ValueError(f"unknown hook {name!r}; write {one_of(COMM_HOOKS, name)}")
    if colon and name != "powersgd":
        raise ValueError(f"{text!r}: {name} has no arguments; write {name}")
    return name, PowerSGD(**dict(_figure(part) for part in figures.split(",")) if colon else {})


def _figure(text: str) -> tuple[str, Any]:
    word, _, value = text.partition("=")
    name = word.replace("-", "_")
    try:
        return name, _FIGURES[name](value)
    except (KeyError, ValueError):
        allowed = ", ".join(known.replace("_", "-") for known in _FIGURES)
        raise ValueError(
            f"{text!r} is not an argument of PowerSGD; write {allowed}, for example rank=4 or warm-start=no"
        ) from None


def _yes(text: str) -> bool:
    return {"yes": True, "no": False}[text]


_FIGURES: dict[str, Callable[[str], Any]] = {
    "rank": int, "start": int, "min_rate": float, "error_feedback": _yes, "warm_start": _yes, "batched": _yes,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Overheads of a step; none by default.

    ``launch_s`` passes between the last gradient of a bucket and the start of its collective, while compute
    continues. ``memory_bandwidth`` (bytes/s, reads and writes together) is the rate at which gradients are
    copied into buckets and out of them, divided and cast. ``operator_s`` is the host's time to launch one
    operator, where many are small (PowerSGD's). ``hook_s``, if given, are the measured seconds of PowerSGD's
    stretches for each bucket: before its first all-reduce, after the first, the second and the third.
    ``contention`` is the share of a rank's compute units that a running collective takes: NCCL takes about
    one SM per channel, so channels / SMs. ``optimizer_s`` is that of the optimizer; then ranks wait for their
    hosts for ``host_s``, however small their part of the step. ``slowdown`` names stragglers: the factor by
    which a rank's layers and optimizer take longer, 1 for ranks not named.
    """

    launch_s: float = 0.0
    memory_bandwidth: float = math.inf
    operator_s: float = 0.0
    hook_s: tuple[tuple[float, ...], ...] = ()
    contention: float = 0.0
    optimizer_s: float = 0.0
    host_s: float = 0.0
    spread: float = 0.0
    slowdown: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("launch_s", "operator_s", "optimizer_s", "host_s"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds >= 0):
                raise ValueError(f"{name} is {seconds} s; write 0 or more")
        if not self.memory_bandwidth > 0:
            raise ValueError(f"a memory bandwidth of {self.memory_bandwidth} bytes/s; write more than 0")
        if not 0 <= self.spread < 1:
            raise ValueError(f"a spread of {self.spread}; write a share from 0 to below 1, for example 0.02")
        if not 0 <= self.contention < 1:
            raise ValueError(f"a contention of {self.contention}; write a share from 0 to below 1")
        for rank, factor in self.slowdown.items():
            if not 1 / MAX_SLOWDOWN <= factor <= MAX_SLOWDOWN:
                raise ValueError(
                    f"a slowdown of {factor} for rank {rank}; "
                    f"write {1 / MAX_SLOWDOWN:.6f} to {MAX_SLOWDOWN:,}, for example 1.5"
                )

    @property
    def alone(self) -> "Costs":
        """Return the costs of a single rank, which copies no gradients and never waits."""
        return replace(self, memory_bandwidth=math.inf, operator_s=0.0, slowdown={})

    def classes(self, ranks: int) -> dict[tuple[int, ...], float]:
        """Return ranks by their compute pace, with its factor; ranks of one pace act at the same times."""
        unknown = sorted(rank for rank in self.slowdown if not 0 <= rank < ranks)
        if unknown:
            raise ValueError(f"a slowdown for rank {unknown[0]}; allowed: ranks 0 to {ranks - 1}")
        paces: dict[float, list[int]] = {}
        for rank in range(ranks):
            paces.setdefault(self.slowdown.get(rank, 1.0), []).append(rank)
        slowest = 1 + self.spread * expected_maximum(ranks)
        return {tuple(alike): factor * slowest for factor, alike in paces.items()}


def expected_maximum(draws: int) -> float:
    """Return the mean of the largest of ``draws`` draws from the standard normal distribution.

    Blom's approximation ("Statistical Estimates and Transformed Beta-Variables", 1958), 4 % above for two
    draws and under 1 % off from eight on.
    """
    return NormalDist().inv_cdf((draws - 0.375) / (draws + 0.25))
