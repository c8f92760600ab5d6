"""What if: the same training with other buckets, or on more nodes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log

from sim.training.ddp.buckets import DEFAULT_CAP_MB
from sim.training.ddp.job import Costs, DataParallel
from sim.training.ddp.simulate import simulate_step
from sim.training.groups import ProcessGroup
from sim.training.step import TrainingStep
from sim.workload.workload import Workload

AS_GOOD = 0.01
"""Bucket sizes whose steps differ by no more than this share of the quickest are held to be equally good."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """A step on one of several node counts; ``efficiency`` is throughput a rank over the first count's."""

    nodes: int
    step: TrainingStep
    efficiency: float


def sweep_buckets(
    workload: Workload,
    group: ProcessGroup,
    caps_mb: Iterable[float],
    ddp: DataParallel | None = None,
    costs: Costs | None = None,
) -> dict[float, TrainingStep]:
    """A step for each ``bucket_cap_mb`` (MiB), everything else alike."""
    job = ddp or DataParallel()
    return {
        cap: simulate_step(
            workload, group, replace(job, bucketing=replace(job.bucketing, bucket_cap_mb=cap)), costs
        )
        for cap in caps_mb
    }


def recommended_cap(sweep: dict[float, TrainingStep]) -> float:
    """The ``bucket_cap_mb`` (MiB) to use: of those as good as the quickest the one nearest to PyTorch's.

    What gains nothing is not worth a change, so near is by ratio to the default of 25 MiB.
    """
    if not sweep:
        raise ValueError("no bucket sizes to choose from; write for example 1, 5, 25, 100")
    quickest = min(step.step_s for step in sweep.values())
    good = [cap for cap, step in sweep.items() if step.step_s <= quickest * (1 + AS_GOOD)]
    return min(good, key=lambda cap: (abs(log(max(cap, 1e-6) / DEFAULT_CAP_MB)), cap))


def weak_scaling(
    workload: Workload,
    nodes: Sequence[int],
    group: Callable[[int], ProcessGroup],
    ddp: DataParallel | None = None,
    costs: Costs | None = None,
) -> list[Scaled]:
    """Every rank keeps its batch: a step on each node count, which ``group`` makes a process group of."""
    return _scaled([(count, simulate_step(workload, group(count), ddp, costs)) for count in nodes])


def strong_scaling(
    workload: Callable[[int], Workload],
    batch: int,
    nodes: Sequence[int],
    group: Callable[[int], ProcessGroup],
    ddp: DataParallel | None = None,
    costs: Costs | None = None,
) -> list[Scaled]:
    """All ranks share ``batch`` samples: a step on each node count, of ``workload(a rank's share)``."""
    steps = []
    for count in nodes:
        ranks = group(count)
        share = share_of(batch, ranks.ranks, (ddp or DataParallel()).accumulation)
        steps.append((count, simulate_step(workload(share), ranks, ddp, costs)))
    return _scaled(steps)


def share_of(batch: int, ranks: int, accumulation: int) -> int:
    """Samples of a rank and pass where all ranks share so many in a step."""
    share, rest = divmod(batch, ranks * accumulation)
    if rest or share < 1:
        raise ValueError(
            f"a batch of {batch} on {ranks} ranks with {accumulation} accumulation steps does not divide; "
            f"write {ranks * accumulation} or a multiple of it"
        )
    return share


def _scaled(steps: Sequence[tuple[int, TrainingStep]]) -> list[Scaled]:
    if not steps:
        raise ValueError("no node counts; write for example 1, 2, 4, 8")
    first = steps[0][1]
    return [
        Scaled(count, step, step.throughput / step.ranks / (first.throughput / first.ranks))
        for count, step in steps
    ]
