"""Fields of DistributedDataParallel: its buckets, communication hook and gradient accumulation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringside.sim.questions.question import Question, option
from ringside.sim.training.ddp.buckets import Bucketing
from ringside.sim.training.ddp.job import COMM_HOOKS, DataParallel
from ringside.sim.training.ddp.powersgd import PowerSGD
from ringside.topologies.names import one_of


def caps_of(text: str | None) -> tuple[float, ...]:
    """Parse MiB of ``1,5,25``."""
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{text!r} are not bucket caps; write MiB separated by commas, for example 1,5,25"
        ) from None


def hook_of(text: str | None) -> tuple[str | None, PowerSGD]:
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


@dataclass(frozen=True, kw_only=True)
class OfBuckets(Question):
    """How DistributedDataParallel assigns gradients to buckets."""

    bucket_cap_mb: float | None = option(
        "Bucket size of DistributedDataParallel.",
        metavar="MIB", default=None, default_text="25 after a first one of 1",
    )  # fmt: skip
    bucket_cap_mb_list: tuple[float, ...] | None = option(
        "Size of each bucket in turn.", metavar="MIB,MIB,...", default=None, parse=caps_of
    )
    find_unused_parameters: bool = option("As DistributedDataParallel's.", default=False)
    static_graph: bool = option("As DistributedDataParallel's.", default=False)
    gradient_as_bucket_view: bool = option("As DistributedDataParallel's.", default=False)

    @property
    def bucketing(self) -> Bucketing:
        """The fields as one value."""
        return Bucketing(
            self.bucket_cap_mb, self.find_unused_parameters, self.static_graph,
            bucket_cap_mb_list=tuple(self.bucket_cap_mb_list or ()),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ByBuckets(OfBuckets):
    """The arguments of DistributedDataParallel."""

    no_broadcast_buffers: bool = option("As DistributedDataParallel's.", default=False)
    comm_hook: str | None = option(
        f"{', '.join(COMM_HOOKS)}; powersgd:rank=4,start=10.",
        metavar="HOOK", default=None, default_text="none",
    )  # fmt: skip
    accumulation: int = option("Passes per step, each reduced; with --no-sync only the last.", default=1)

    @property
    def ddp(self) -> DataParallel:
        """The arguments as one value."""
        hook, powersgd = hook_of(self.comm_hook)
        return DataParallel(
            bucketing=self.bucketing, comm_hook=hook, powersgd=powersgd,
            gradient_as_bucket_view=self.gradient_as_bucket_view,
            broadcast_buffers=not self.no_broadcast_buffers, accumulation=self.accumulation,
        )  # fmt: skip
