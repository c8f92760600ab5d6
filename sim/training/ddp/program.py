"""A step of DistributedDataParallel as a `Program`: the passes of a workload, and its gradients' buckets.

With Gloo, PowerSGD's hook continues in the thread that carried its first all-reduce. That thread launches the
next two and waits for them, so other threads must carry these. If all threads wait, the step hangs: with two
threads, when a bucket is launched before the previous one has launched its third all-reduce. On NCCL only
streams wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ringside.sim.libraries.rules import GLOO, NCCL
from ringside.sim.program import Group, Program
from ringside.sim.training.ddp.plan import StepPlan
from ringside.sim.training.ddp.sharing import Chain, Replicated
from ringside.sim.training.mesh import Communicators, Mesh
from ringside.sim.training.rank import STREAM, RankList


@dataclass(frozen=True, slots=True)
class ReplicaStep:
    """The operations of one rank whose layers take ``factor`` times their time."""

    factor: float
    rank: RankList
    sharing: Replicated

    @property
    def last(self) -> int | None:
        """The last operation of the stream."""
        return self.rank.latest.get(STREAM)


def rank_step(job: StepPlan, factor: float, group: Group) -> ReplicaStep:
    """Write the operations of a rank of this pace."""
    rank = RankList(group.ranks[0], Communicators(Mesh(replicate=job.ranks)))
    sharing, workload = Replicated(rank, job, group), job.workload
    totals = workload.totals

    def compute(kind: str, name: str, seconds: float) -> None:
        rank.compute(seconds * factor, name, kind)

    for left in reversed(range(job.ddp.accumulation)):
        sharing.before_forward(0)
        if left and job.ddp.no_sync:
            compute("forward", f"forward {job.ddp.accumulation - left}, no_sync", totals.forward_s)
            compute("backward", f"backward {job.ddp.accumulation - left}, no_sync", totals.backward_s)
            continue
        for layer in reversed(workload.layers):
            compute("forward", layer.name, layer.forward_s)
        for number, layer in zip(reversed(range(len(workload.layers))), workload.layers, strict=True):
            compute("backward", layer.name, layer.backward_s)
            sharing.after_backward(number, last=not left)
    sharing.after_step()
    compute("optimizer", "optimizer", job.costs.optimizer_s)
    return ReplicaStep(factor, rank, sharing)


@dataclass(frozen=True, slots=True)
class StepProgram:
    """A step of all ranks; the first rank of each pace stands for all ranks of that pace."""

    program: Program
    roles: tuple[int, ...]
    steps: dict[tuple[int, ...], ReplicaStep]
    """Steps by the ranks of one pace, in the order of their first rank."""


def step_program(job: StepPlan, workers: int) -> StepProgram:
    """Return a plan's step as a program; ``workers`` are Gloo's threads, 1 for NCCL's stream."""
    rules = NCCL if workers == 1 else GLOO
    group = Group("data parallel", tuple(range(job.ranks)), rules.name, free_workers(job, workers))
    steps = {alike: rank_step(job, factor, group) for alike, factor in job.costs.classes(job.ranks).items()}
    of_rank = {rank: step for alike, step in steps.items() for rank in alike}
    role = {rank: alike[0] for alike in steps for rank in alike}
    lists = [of_rank[rank].rank.operations for rank in range(job.ranks)]
    program = Program(job.workload.name, job.ranks, lists.__getitem__)
    return StepProgram(program, tuple(role[rank] for rank in range(job.ranks)), steps)


class HangError(ValueError):
    """A training step that never ends; the message gives the reason."""


def free_workers(job: StepPlan, workers: int) -> int:
    """Return the number of collectives that run at once: with PowerSGD one of several threads waits."""
    return workers - 1 if job.ddp.compresses and workers > 1 else workers


def check_threads(job: StepPlan, chains: Sequence[Chain], ends: Sequence[float], workers: int) -> None:
    """Raise `HangError` if every thread of a rank waits; ``ends`` are the ends of its operations."""
    if not job.ddp.compresses or workers == 1:
        return
    waiting: list[float] = []
    for number, chain in enumerate(chains):
        launch = _moment(ends, chain.launched[0].launch)
        waiting = [*(moment for moment in waiting if moment > launch), _moment(ends, chain.launched_after)]
        if len(waiting) >= workers:
            raise HangError(
                f"{job.workload.name}: PowerSGD hangs at bucket {number}, launched while earlier "
                f"buckets still need a thread: all of Gloo's {workers} wait; write a larger "
                "`bucket_cap_mb`, up to one bucket for all, or `library` nccl"
            )


def _moment(ends: Sequence[float], place: int | None) -> float:
    return 0.0 if place is None else ends[place]
