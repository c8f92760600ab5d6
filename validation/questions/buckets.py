"""Fields of DistributedDataParallel: its buckets, communication hook and gradient accumulation."""

from dataclasses import dataclass
from typing import Any

from ringside.sim.questions.question import Question, option
from ringside.sim.training.ddp.job import COMM_HOOKS


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
    def bucketing(self) -> dict[str, Any]:
        """The arguments of a `ringside.sim.training.ddp.buckets.Bucketing`."""
        return {
            "bucket_cap_mb": self.bucket_cap_mb, "bucket_cap_mb_list": tuple(self.bucket_cap_mb_list or ()),
            "find_unused_parameters": self.find_unused_parameters, "static_graph": self.static_graph,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ByBuckets(OfBuckets):
    """The arguments of DistributedDataParallel."""

    no_broadcast_buffers: bool = option("As DistributedDataParallel's.", default=False)
    comm_hook: str | None = option(
        f"{', '.join(COMM_HOOKS)}; powersgd:rank=4,start=10.",
        metavar="HOOK", default=None, default_text="none",
    )  # fmt: skip
    accumulation: int = option("Passes per step, each reduced; with --no-sync only the last.", default=1)
