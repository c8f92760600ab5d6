"""The smallest change of a layout that makes a job fit into memory."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import EXPERT_STRATEGIES, FSDP, Layout, LayoutError
from ringside.sim.training.memory import peak
from ringside.sim.training.program import Writing
from ringside.sim.workload.decoder import CHECKPOINTING

LIGHTER = {
    "zero1": "zero2", "zero2": "zero3",
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
    return max(peak(step.held, step.rank.operations).nbytes for step in steps)


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
        yield from _single(replace(layout, checkpointing="full"))


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
        yield {"checkpointing": checkpointing}
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
