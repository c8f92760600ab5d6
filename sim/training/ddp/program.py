"""A step of DistributedDataParallel as a `Program`.

All that a rank computes stands on one stream; collectives are beside it in their group's queue, launched
when that stream has come so far and waited for where it needs them. The delay between, and the cast back
of a comm hook, are nobody's units, so they have no lane. Zero seconds of work are no operation.
"""

from dataclasses import dataclass

from sim.collective import Collective
from sim.program import Action, Call, Compute, Group, Operation, Program, Wait
from sim.training.ddp.plan import BROADCASTS_IN_FLIGHT, StepPlan

STREAM = "compute"


@dataclass(slots=True)
class Launched:
    """A collective of one rank's list, by places: after what it was ready and launched, its call, its end.

    ``None`` is the step's begin.
    """

    name: str
    collective: Collective
    ready: int | None
    launch: int | None
    call: int
    finish: int


class RankStep:
    """What one rank does in a step whose layers take it ``factor`` times their time."""

    def __init__(self, job: StepPlan, factor: float, group: Group) -> None:
        self.job = job
        self.factor = factor
        self.group = group
        self.operations: list[Operation] = []
        self.rebuild: list[Launched] = []
        self.buffers: list[Launched] = []
        self.buckets: list[Launched] = []
        self.usage: list[Launched] = []
        self.last: int | None = None
        """The last operation of the stream so far."""
        buckets = self.job.buckets
        self._bucket_of = {index: number for number, one in enumerate(buckets) for index in one.parameters}
        self._first = job.workload.arrival[0]
        self._pending = [len(bucket.parameters) for bucket in buckets]
        self._ready: list[int | None] = [None] * len(buckets)
        self._before_forward()
        self._passes()
        self._after_backward()
        self._compute("optimizer", "optimizer", self.job.costs.optimizer_s)

    @property
    def launched(self) -> list[Launched]:
        """Every collective, in the order that answers have."""
        return [*self.rebuild, *self.buffers, *self.buckets, *self.usage]

    def _before_forward(self) -> None:
        for number, collective in enumerate(self.job.rebuild()):
            self.rebuild.append(self._launch(f"rebuild {number}", collective))
            self._wait(self.rebuild[-1])
        for number, collective in enumerate(self.job.buffers()):
            if number >= BROADCASTS_IN_FLIGHT:
                self._wait(self.buffers[number - BROADCASTS_IN_FLIGHT])
            self.buffers.append(self._launch(f"buffers {number}", collective))
        for launched in self.buffers:
            self._wait(launched)

    def _passes(self) -> None:
        job, workload = self.job, self.job.workload
        for number in range(1, job.ddp.accumulation):
            self._compute("forward", f"forward {number}, no_sync", workload.forward_s)
            self._compute("backward", f"backward {number}, no_sync", workload.backward_s)
        for layer in reversed(workload.layers):
            self._compute("forward", layer.name, layer.forward_s)
        for layer in workload.layers:
            self._compute("backward", layer.name, layer.backward_s)
            if not job.delayed:
                self._reduce(layer.gradients)
        if job.delayed:
            self._reduce(workload.arrival)

    def _reduce(self, gradients: tuple[int, ...]) -> None:
        """Bring gradients into their buckets, and launch the buckets whose turn it is."""
        job = self.job
        for index in job.unused if self._first in gradients[:1] else ():
            self._in_bucket(index)
        for index in gradients:
            name = job.workload.parameters[index].name
            self._work("copy", f"{name} into bucket", job.into_bucket_s(index))
            self._in_bucket(index)
            if not job.delayed:
                self._launch_buckets()
        if job.delayed:
            self._launch_buckets()

    def _in_bucket(self, index: int) -> None:
        number = self._bucket_of[index]
        self._pending[number] -= 1
        self._ready[number] = self.last

    def _launch_buckets(self) -> None:
        """Launch buckets in strict order, as far as they are full."""
        job = self.job
        while len(self.buckets) < len(job.buckets) and not self._pending[len(self.buckets)]:
            number = len(self.buckets)
            bucket = job.buckets[number]
            self._work("copy", f"pack bucket {number}", job.pack_s(bucket))
            launched = self._launch(f"bucket {number}", job.reduction(bucket), job.unpack_s(bucket))
            launched.ready = self._ready[number]
            self.buckets.append(launched)
            usage = job.usage()
            if len(self.buckets) == len(job.buckets) and usage:
                self.usage.append(self._launch("used parameters 0", usage))

    def _after_backward(self) -> None:
        for number, launched in enumerate(self.buckets):
            self._wait(launched)
            seconds = self.job.out_of_bucket_s(self.job.buckets[number])
            self._work("copy", f"bucket {number} to gradients", seconds)
        for launched in self.usage:
            self._wait(launched)

    def _launch(self, name: str, collective: Collective, unpack_s: float = 0.0) -> Launched:
        launch, before = self.last, self._after
        if self.job.costs.launch_s:
            before = (self._post(Compute(self.job.costs.launch_s), before, f"launch of {name}", "launch"),)
        call = Call(self.group, collective.kind, collective)
        finish = place = self._post(call, before, name, collective.kind)
        if unpack_s:
            finish = self._post(Compute(unpack_s), (place,), f"unpack {name}", "unpack")
        return Launched(name, collective, launch, launch, place, finish)

    def _wait(self, launched: Launched) -> None:
        self.last = self._post(Wait(), (launched.finish,), f"wait for {launched.name}", "wait", STREAM)

    def _compute(self, kind: str, name: str, seconds: float) -> None:
        self._work(kind, name, seconds * self.factor)

    def _work(self, kind: str, name: str, seconds: float) -> None:
        if seconds:
            self.last = self._post(Compute(seconds), (), name, kind, STREAM)

    def _post(
        self, action: Action, after: tuple[int, ...], name: str, kind: str, lane: str | None = None
    ) -> int:
        self.operations.append(Operation(action, lane, after, False, name, kind))
        return len(self.operations) - 1

    @property
    def _after(self) -> tuple[int, ...]:
        return () if self.last is None else (self.last,)


@dataclass(frozen=True, slots=True)
class StepProgram:
    """A step of all ranks; of those that compute at one pace the first one's stands for all."""

    program: Program
    roles: tuple[int, ...]
    steps: dict[tuple[int, ...], RankStep]
    """By the ranks that they are of, in the order of the first."""


def step_program(job: StepPlan, workers: int) -> StepProgram:
    """The step of a plan, in a group of which so many collectives run at once."""
    group = Group("data parallel", tuple(range(job.ranks)), "nccl", workers)
    steps = {alike: RankStep(job, factor, group) for alike, factor in job.costs.classes(job.ranks).items()}
    of_rank = {rank: step for alike, step in steps.items() for rank in alike}
    role = {rank: alike[0] for alike in steps for rank in alike}
    program = Program(job.workload.name, job.ranks, lambda rank: of_rank[rank].operations)
    return StepProgram(program, tuple(role[rank] for rank in range(job.ranks)), steps)
