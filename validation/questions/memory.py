"""Memory of a training step in answers: what ranks allocate, and which changes of the layout save some."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ringside.sim.training import advice
from ringside.sim.training.fsdp_policy import OPTIMIZER
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layers import Terms
from ringside.sim.training.layout import Layout
from ringside.sim.training.memory.room import FITS, MemoryFit
from ringside.sim.training.parallel import ParallelTraining
from ringside.sim.training.step import ParallelStep, StageTime

TIMED = 6
"""Number of changes whose step is simulated: those that save most."""


def allocated(stages: Sequence[StageTime]) -> list[dict[str, int]]:
    """Return the bytes that each stage's ranks have allocated at their peak, in later steps and in the first.

    The first step allocates the optimizer's states only at its end.
    """
    return [
        {
            "stage": place, "rank": one.rank, "ranks": one.ranks, "bytes": one.peak.nbytes,
            "first_step": max(one.peak.nbytes - one.peak.by_pool.get(OPTIMIZER, 0), one.memory.curve[-1][1]),
        }
        for place, one in enumerate(stages)
    ]  # fmt: skip


def kept_bytes(job: ParallelJob, place: int) -> list[dict[str, Any]]:
    """Return what a micro-batch keeps in the layers of a pipeline rank, by term; equal layers are one."""
    alike: dict[Terms, list[str]] = {}
    for stage in job.placement.of(place):
        for layer in job.layers(stage):
            alike.setdefault(layer.kept, []).append(layer.name)
    return [
        {"layers": names, "terms": {name: nbytes for name, nbytes in kept if nbytes}}
        for kept, names in alike.items()
    ]


def lighter(training: ParallelTraining, layout: Layout, fit: MemoryFit) -> tuple[str, int] | None:
    """Return options that would make a training fit, and the peak with them; None if none is known."""
    if fit.verdict == FITS:
        return None
    changed = advice.advice(layout, training.job, fit.memory - fit.reserve)
    return changed and (_changes(layout, changed[0]), changed[1])


def savings(training: ParallelTraining, layout: Layout, step: ParallelStep) -> list[dict[str, Any]]:
    """Return single changes of a layout by the bytes that they save, with their step and samples/s.

    ``slower`` is the share by which a sample takes longer than in ``step``, that of the layout itself.
    """
    answers = []
    for one in advice.savings(layout, training.job)[:TIMED]:
        changed = training.step(training.job(one.layout)).step
        answers.append(
            {
                "options": _changes(layout, one.layout),
                "saved_bytes": one.nbytes,
                "step_s": changed.step_s,
                "throughput": changed.throughput,
                "slower": step.throughput / changed.throughput - 1,
            }
        )
    return answers


def _changes(before: Layout, after: Layout) -> str:
    """Return the options that turn one layout into another."""
    options = []
    for one in fields(Layout):
        value, flag = getattr(after, one.name), f"--{one.name.replace('_', '-')}"
        if value is None or value == getattr(before, one.name):
            continue
        options.append(
            f"{flag} {value}" if not isinstance(value, bool) else flag if value else f"without {flag}"
        )
    return " ".join(options)


def margin_of(fit: MemoryFit) -> dict[str, Any]:
    """Return a GPU's memory, its reserve and the margin, and what it holds beside allocations."""
    beside = {**fit.beside, "communicators": dict(fit.nccl)}
    return {"of_gpu": fit.memory, "reserve": fit.reserve, "margin": fit.margin, "beside": beside}
