"""Steps of DistributedDataParallel and how they scale: a row for each library and bucket cap."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import lcm
from typing import Any

from ringside.sim.libraries.library import Library
from ringside.sim.program.groups import process_group
from ringside.sim.training.ddp.scaling import ALONE, share_of
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.ddp.step import TrainingStep
from ringside.validation.questions.trained import Trained
from ringside.validation.questions.training import Training


@dataclass(frozen=True, slots=True)
class Outcome:
    """One step; efficiencies are throughput a rank over that of one rank alone.

    Weak: with the same batch a rank. Strong: with the same samples in all.
    """

    library: Library
    cap_mb: float | None
    step: TrainingStep
    weak: float
    strong: float

    @property
    def totals(self) -> dict[str, Any]:
        """Ranks, samples, seconds and samples/s of the step."""
        step = self.step
        return {
            "ranks": step.ranks,
            "samples": step.samples,
            "step_s": step.step_s,
            "throughput": step.throughput,
        }

    @property
    def content(self) -> dict[str, Any]:
        """The row in plain values."""
        step = self.step
        return {
            **self.totals,
            "lower_s": step.lower_s,
            "upper_s": step.upper_s,
            "num_nodes": self.library.nodes,
            "bucket_cap_mb": self.cap_mb,
            "weak_efficiency": self.weak,
            "strong_efficiency": self.strong,
            "compute_s": step.compute_s,
            "contention_s": step.contention_s,
            "copy_s": step.copy_s,
            "communication_s": step.communication_s,
            "exposed_s": step.exposed_s,
            "overlap_efficiency": step.overlap_efficiency,
            "buckets": [asdict(bucket) for bucket in step.buckets],
        }


def outcomes(
    training: Training,
    what: Trained,
    libraries: Sequence[Library],
    caps: Sequence[float | None],
    global_batch: int | None,
    on_step: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Return a step for each library and each bucket cap; ``on_step`` is called with each one simulated.

    Efficiencies of strong scaling are of ``global_batch`` samples, by default the fewest for all libraries.
    """
    work, ddp = what.sized(None), training.ddp
    passes = ddp.accumulation
    together = work.batch * passes * lcm(*(one.ranks for one in libraries))
    together = together if global_batch is None else global_batch
    shares = [share_of(together, one.ranks, passes) for one in libraries]
    alone = what.costs_on(libraries[0]).alone
    base = simulate_step(work, ALONE, ddp, alone).throughput
    large = simulate_step(what.sized(share_of(together, 1, passes)), ALONE, ddp, alone).throughput
    rows = []
    for library, share in zip(libraries, shares, strict=True):
        many, costs = process_group(library), what.costs_on(library)
        for cap in caps:
            job = replace(ddp, bucketing=replace(ddp.bucketing, bucket_cap_mb=cap))
            step = simulate_step(work, many, job, costs)
            alike = share == work.batch
            strong = step if alike else simulate_step(what.sized(share), many, job, costs)
            efficiencies = (step.throughput / base, strong.throughput / large)
            rows.append(Outcome(library, cap, step, *(value / many.ranks for value in efficiencies)))
            on_step(f"simulated {many.ranks} ranks")
    return rows
