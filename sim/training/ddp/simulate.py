"""A training step under DistributedDataParallel, simulated on SimPy.

Each layer's backward ends with its gradients, which go into their buckets. A bucket is launched when
all of its gradients are in and every bucket before it has been launched; its collective starts when
every rank has launched it and a worker of the process group is free. Compute continues meanwhile, and
waits for the buckets, in their order, when backward has ended; then the optimizer steps. In one
stream without contention this is

    launch_i = max(ready_i, launch_{i-1}),  start_i = max(launch_i + launch_s, end_{i-1})

(torch/csrc/distributed/c10d/reducer.cpp, PyTorch 2.13). Ranks of one compute pace act at
the same times, so one of them is simulated for all; a collective ends on all ranks at once. Not
modelled: the input pipeline, the host's traversal of the graph for ``find_unused_parameters``.

With Gloo, PowerSGD's hook continues in the thread that carried its first all-reduce. That thread launches the
next two and waits for them, so other threads must carry these. If all threads wait, the step hangs: with two
threads, when a bucket is launched before the previous one has launched its third all-reduce. On NCCL only
streams wait.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ringside.sim.disturbance.disturbance import Draw
from ringside.sim.libraries.library import check_step
from ringside.sim.libraries.rules import GLOO, NCCL
from ringside.sim.program import Compute, Group, Program
from ringside.sim.program.groups import ProcessGroup, SimulatedGroup, TimedGroup, play_in_group, time_alone
from ringside.sim.program.simulate import Simulation
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.plan import Chain, Replicated, StepPlan, plan
from ringside.sim.training.ddp.step import Activity, DdpRecord, Pace, Reduction, TrainingStep, busy, exposed
from ringside.sim.training.mesh import Communicators, Mesh
from ringside.sim.training.stage import HOST, STREAM, RankList
from ringside.sim.workload.workload import Workload
from ringside.topologies.file import loads


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
    if job.costs.host_s:
        rank.pause(job.costs.host_s, HOST)
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


def simulate_step(
    workload: Workload, group: ProcessGroup, ddp: DataParallel | None = None, costs: Costs | None = None
) -> TrainingStep:
    """Simulate one optimizer step of the workload on every rank of the group.

    Raise `ringside.sim.libraries.library.LawError` if the answer breaks a bound.
    """
    job = plan(workload, group.ranks, ddp or DataParallel(), costs or Costs())
    made = step_program(job, group.workers)
    simulation = play_in_group(made.program, group, roles=made.roles, contention=job.costs.contention)
    for index, own in enumerate(made.steps.values()):
        check_threads(job, own.sharing.chains, simulation.end[index], group.workers)
    step = _summary(job, made, simulation)
    bound = lru_cache(maxsize=None)(group.bound)
    collectives = [launched.collective for launched in _first(made).sharing.launched]
    _check(step, sum(map(bound, collectives)) / group.workers)
    return step


def simulate_disturbed(
    workload: Workload, group: ProcessGroup, ddp: DataParallel, costs: Costs, draw: Draw
) -> Simulation:
    """Simulate one draw of a disturbed step: every rank has its own pace and is simulated."""
    job = plan(workload, group.ranks, ddp, costs)
    made = step_program(job, group.workers)
    return play_in_group(
        draw.program(made.program), group, contention=job.costs.contention, late=draw.disturbance.late
    )


def _check(step: TrainingStep, bound_s: float) -> None:
    """Raise LawError for a step that breaks a law; ``bound_s`` is the least time of its collectives."""
    what = f"a step of {step.workload} on {step.ranks} ranks"
    # each collective's time is a difference of two times, whose rounding errors grow with the step
    rounding = 4 * len((*step.buckets, *step.others)) * sys.float_info.epsilon * step.step_s
    check_step(what, step.step_s, step.compute_s, step.communication_s, step.overhead_s, bound_s - rounding)


def _summary(job: StepPlan, made: StepProgram, simulation: Simulation) -> TrainingStep:
    workload, accumulation = job.workload, job.ddp.accumulation
    paces = tuple(
        Pace(alike, step.factor, tuple(_spans(simulation, index)))
        for index, (alike, step) in enumerate(made.steps.items())
    )
    slowest = max(range(len(paces)), key=lambda index: paces[index].slowdown)
    own = paces[slowest]
    totals = workload.totals
    passes = accumulation * (totals.forward_s + totals.backward_s)
    reduced = 1 if job.ddp.no_sync else accumulation
    copy_s = reduced * (
        sum(job.into_bucket_s(index) for index in workload.arrival)
        + sum(job.pack_s(bucket) for bucket in job.buckets)
        + sum(job.out_of_bucket_s(bucket) for bucket in job.buckets)
    )
    first_step = _first(made).sharing
    runs = [_run(number, made, simulation) for number in range(len(first_step.launched))]
    unpack_s = reduced * sum(job.after_s(bucket) for bucket in job.buckets)
    hidden_s = job.costs.launch_s * len(runs) + unpack_s
    count, first = len(first_step.buckets), len(first_step.rebuild) + len(first_step.buffers)
    return TrainingStep(
        workload=workload.name,
        ranks=job.ranks,
        samples=workload.batch * accumulation * job.ranks,
        step_s=_moment(simulation.end[slowest], made.steps[own.ranks].last),
        forward_s=own.total("forward"),
        backward_s=own.total("backward"),
        optimizer_s=own.total("optimizer"),
        compute_s=(passes + job.costs.optimizer_s) * own.slowdown,
        contention_s=_contention(simulation, slowest) if job.costs.contention else 0.0,
        copy_s=copy_s,
        communication_s=busy(runs),
        exposed_s=exposed(own.spans, runs),
        overhead_s=copy_s + hidden_s + job.costs.host_s,
        buckets=tuple(runs[first : first + count]),
        others=(*runs[:first], *runs[first + count :]),
        paces=paces,
    )


def _first(made: StepProgram) -> ReplicaStep:
    return next(iter(made.steps.values()))


def _run(number: int, made: StepProgram, simulation: Simulation) -> Reduction:
    """Return the times of one collective: it is ready, and launched, when the last rank is."""
    sides = [
        (step.sharing.launched[number], simulation.start[index], simulation.end[index])
        for index, step in enumerate(made.steps.values())
    ]
    one, start, end = sides[0]
    return Reduction(
        one.name,
        one.collective.kind,
        one.collective.nbytes,
        max(_moment(ends, side.ready) for side, _, ends in sides),
        max(_moment(ends, side.launch) for side, _, ends in sides),
        start[one.call],
        end[one.call],
        end[one.finish],
    )


def _spans(simulation: Simulation, index: int) -> Iterator[Activity]:
    """Return the spans of a rank's stream; a wait begins at the end of the span before."""
    before: float = 0
    for place, operation in enumerate(simulation.operations[index]):
        if operation.lane == STREAM:
            begin, end = simulation.begin[index][place], simulation.end[index][place]
            if operation.category != "wait":
                yield Activity(begin, end, operation.category, operation.name)
            elif end > before:
                yield Activity(before, end, "wait", operation.name)
            before = end


def _contention(simulation: Simulation, index: int) -> float:
    """Return the seconds by which collectives extended a rank's compute."""
    longer = (
        max(simulation.end[index][place] - simulation.begin[index][place] - operation.action.seconds, 0.0)
        for place, operation in enumerate(simulation.operations[index])
        if operation.lane == STREAM and isinstance(operation.action, Compute)
    )
    return sum(longer, 0.0)


def _moment(ends: Sequence[float], place: int | None) -> float:
    return 0 if place is None else ends[place]


def predict(record: DdpRecord) -> TrainingStep:
    """Return the predicted step, without use of the measured ones."""
    wires = record.wires
    group = SimulatedGroup(
        loads(wires.topology, "the measured topology"), record.ranks, library=wires.library,
        algorithm=wires.algorithm, gamma=wires.gamma, launch_s=wires.launch_s, workers=record.workers,
    )  # fmt: skip
    costs = Costs(
        memory_bandwidth=record.memory_bandwidth or math.inf,
        contention=record.contention,
        hook_s=record.hook_s,
    )
    if not record.crowding:
        return simulate_step(record.workload, group, record.ddp, costs)
    crowded = TimedGroup(record.ranks, time_alone(group), record.workers, record.crowding)
    return simulate_step(record.workload, crowded, record.ddp, costs)
