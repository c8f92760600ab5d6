"""Changes of a layout that save memory, and how much of it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.memory.peak import use
from ringside.sim.training.program import Writing
from ringside.sim.training.strategies import EXPERT_STRATEGIES, FSDP
from ringside.sim.workload.decoder import CHECKPOINTING

LIGHTER = {
    "zero1": "zero2", "zero2": "zero3", "megatron_ddp": "distributed_optimizer",
    **dict.fromkeys(("ddp", "hsdp", "distributed_optimizer", "zero_redundancy", "hybrid_zero"), "fsdp"),
}  # fmt: skip
"""For each strategy a strategy that shards more."""


def peak_nbytes(job: ParallelJob) -> int:
    """Return the approximate peak of a rank at the first and at the last place of the pipeline.

    Operations are counted in listed order, without simulation; overlapping ones may hold a little more.
    Without a pipeline two micro-batches hold as much as any number.
    """
    if job.mesh.pipeline == 1:
        job = replace(job, batch=job.layout.micro_batch * min(job.micro_batches, 2))
    writing = Writing(job)
    played = sorted(set(job.roles))
    steps = [writing.step(rank) for rank in {played[0], played[-1]}]
    return max(use(step.held, step.rank.operations).peak.nbytes for step in steps)


def advice(layout: Layout, job: Callable[[Layout], ParallelJob], nbytes: int) -> tuple[Layout, int] | None:
    """Return the first change under which every rank holds at most ``nbytes`` bytes, and its peak bytes.

    ``job`` makes the job under a layout, and raises ValueError for an invalid one.
    """
    for changed in changes(layout):
        try:
            peak = peak_nbytes(job(changed))
        except ValueError:
            continue
        if peak <= nbytes:
            return changed, peak
    return None


def changes(layout: Layout) -> Iterator[Layout]:
    """Yield other layouts, the smallest changes first: one change, then another with full checkpointing."""
    yield from _single(layout)
    if layout.checkpointing != "full":
        yield from _single(replace(layout, checkpointing="full", recompute=None))


def _single(layout: Layout) -> Iterator[Layout]:
    for changed in _changed_fields(layout):
        try:
            yield replace(layout, **changed)
        except LayoutError:
            continue


def _changed_fields(layout: Layout) -> Iterator[dict[str, Any]]:
    """Yield single changes, valid or not."""
    if layout.tp > 1 and not layout.sequence_parallel:
        yield {"sequence_parallel": True}
    if layout.micro_batch > 1:
        yield {"micro_batch": layout.micro_batch // 2}
    if layout.strategy in FSDP and layout.no_sync and layout.pp == 1:
        yield {"no_sync": False}
    for checkpointing in CHECKPOINTING[CHECKPOINTING.index(layout.checkpointing) + 1 :]:
        yield {"checkpointing": checkpointing, "recompute": None}
    if layout.strategy in LIGHTER:
        apart = {"overlap_grad_reduce": False, "overlap_param_gather": False}
        yield {"strategy": LIGHTER[layout.strategy], "shard": None, **apart}
    if layout.strategy in EXPERT_STRATEGIES:
        for times in (2, 4, 8):
            yield {"ep": layout.ep * times}
    for times in (2, 4, 8):
        yield {"tp": layout.tp * times}
    for times in (2, 4, 8):
        yield {"cp": layout.cp * times}
    for times in (2, 4, 8):
        yield {"pp": layout.pp * times}


NEGLIGIBLE = 0.001
"""The share of a peak below which a change saves nothing worth its time."""


class Saving(NamedTuple):
    """A layout that differs in one way, and the bytes by which its largest peak is less."""

    layout: Layout
    nbytes: int


def savings(layout: Layout, job: Callable[[Layout], ParallelJob]) -> list[Saving]:
    """Return single changes of a layout that lower the largest peak, one of each kind, the best first.

    ``job`` is that of `advice`.
    """
    before = peak_nbytes(job(layout))
    lower: list[Saving] = []
    seen: set[tuple[str, ...]] = set()
    for changed in _changed_fields(layout):
        # a degree is tried in growing steps: the smallest one that saves memory costs least
        kind = ("checkpointing", changed["checkpointing"]) if "checkpointing" in changed else tuple(changed)
        if kind in seen:
            continue
        try:
            other = replace(layout, **changed)
            nbytes = peak_nbytes(job(other))
        except ValueError:
            continue
        if before - nbytes > NEGLIGIBLE * before:
            seen.add(kind)
            lower.append(Saving(other, before - nbytes))
    return sorted(lower, key=lambda one: -one.nbytes)
