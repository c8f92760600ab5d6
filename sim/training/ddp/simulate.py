"""A training step under DistributedDataParallel, simulated on SimPy.

Each layer's backward ends with its gradients, which go into their buckets. A bucket is launched when
all of its gradients are in and every bucket before it has been launched; its collective starts when
every rank has launched it and a worker of the process group is free. Compute goes on meanwhile, and
waits for the buckets, in their order, when backward has ended; then the optimizer steps. In one
stream without contention this is

    launch_i = max(ready_i, launch_{i-1}),  start_i = max(launch_i + launch_s, end_{i-1})

(torch/csrc/distributed/c10d/reducer.cpp, PyTorch 2.13). Ranks that compute at one pace do the same at
the same time, so one of them is simulated for all; a collective ends on all ranks at once. What
is not here: the input pipeline, the host's traversal of the graph for ``find_unused_parameters``.
"""

import sys
from collections.abc import Iterable
from functools import lru_cache

import simpy

from sim.collective import Collective
from sim.engine.laws import check_step, check_time
from sim.training.communicator import CollectiveQueue, Operation, Process
from sim.training.ddp.job import Costs, DataParallel
from sim.training.ddp.plan import BROADCASTS_IN_FLIGHT, StepPlan, plan
from sim.training.groups import ProcessGroup
from sim.training.step import Pace, Reduction, Span, TrainingStep, busy, exposed
from sim.workload.workload import Workload


def simulate_step(
    workload: Workload, group: ProcessGroup, ddp: DataParallel | None = None, costs: Costs | None = None
) -> TrainingStep:
    """One optimizer step of the workload on every rank of the group.

    Raise `sim.engine.laws.LawError` where the answer would break a bound.
    """
    job = plan(workload, group.ranks, ddp or DataParallel(), costs or Costs())
    env = simpy.Environment()
    classes = job.costs.classes(group.ranks)
    operations = _Operations(env, job, len(classes))
    communicator = CollectiveQueue(env, group, job.costs.launch_s)
    parties = [_RankProcess(env, job, factor, operations, communicator) for factor in classes.values()]
    for party in parties:
        env.process(party.step())
    env.run()
    paces = tuple(
        Pace(alike, party.factor, tuple(party.spans)) for alike, party in zip(classes, parties, strict=True)
    )
    step = _summary(job, operations, max(parties, key=lambda party: party.factor), paces)
    bound = lru_cache(maxsize=None)(group.bound)
    _check(step, sum(bound(operation.collective) for operation in operations.all()) / group.workers)
    return step


def _check(step: TrainingStep, bound_s: float) -> None:
    """Refuse a step that breaks a law; ``bound_s`` is the least that its collectives can take."""
    what = f"a step of {step.workload} on {step.ranks} ranks"
    # each collective's time is a difference of two moments, which are as exact as the step is long
    rounding = 4 * len((*step.buckets, *step.others)) * sys.float_info.epsilon * step.step_s
    check_time(f"communication of {what}", step.communication_s + rounding, {"traffic": bound_s})
    check_step(what, step.step_s, step.compute_s, step.communication_s, step.overhead_s)


class _Operations:
    """The collectives of one step, in the order in which every rank launches them."""

    def __init__(self, env: simpy.Environment, job: StepPlan, parties: int) -> None:
        def make(name: str, collectives: Iterable[Collective]) -> list[Operation]:
            return [
                Operation(env, f"{name} {i}", collective, parties) for i, collective in enumerate(collectives)
            ]

        self.rebuild = make("rebuild", job.rebuild())
        self.buffers = make("buffers", job.buffers())
        self.buckets = [
            Operation(env, f"bucket {i}", job.reduction(bucket), parties, job.unpack_s(bucket))
            for i, bucket in enumerate(job.buckets)
        ]
        usage = job.usage()
        self.usage = make("used parameters", [usage] if usage else [])

    def all(self) -> list[Operation]:
        """Every one of them."""
        return [*self.rebuild, *self.buffers, *self.buckets, *self.usage]


class _RankProcess:
    """One rank, on behalf of all that compute at its pace."""

    def __init__(
        self,
        env: simpy.Environment,
        job: StepPlan,
        factor: float,
        operations: _Operations,
        communicator: CollectiveQueue,
    ) -> None:
        self.factor = factor
        self.spans: list[Span] = []
        self.contention = 0.0
        self.end = 0.0
        self._env = env
        self._job = job
        self._operations = operations
        self._communicator = communicator
        self._bucket_of = {
            index: number for number, bucket in enumerate(job.buckets) for index in bucket.parameters
        }
        self._pending = [len(bucket.parameters) for bucket in job.buckets]
        self._launched = 0

    def step(self) -> Process:
        """The whole step."""
        workload, job = self._job.workload, self._job
        yield from self._before_forward()
        for number in range(1, job.ddp.accumulation):
            yield from self._compute("forward", f"forward {number}, no_sync", workload.forward_s)
            yield from self._compute("backward", f"backward {number}, no_sync", workload.backward_s)
        for layer in reversed(workload.layers):
            yield from self._compute("forward", layer.name, layer.forward_s)
        for layer in workload.layers:
            yield from self._compute("backward", layer.name, layer.backward_s)
            if not job.delayed:
                yield from self._reduce(layer.gradients)
        if job.delayed:
            yield from self._reduce(workload.arrival)
        yield from self._after_backward()
        yield from self._compute("optimizer", "optimizer", job.costs.optimizer_s)
        self.end = self._env.now

    def _before_forward(self) -> Process:
        for operation in self._operations.rebuild:
            self._launch(operation)
            yield from self._wait(operation)
        buffers = self._operations.buffers
        for number, operation in enumerate(buffers):
            if number >= BROADCASTS_IN_FLIGHT:
                yield from self._wait(buffers[number - BROADCASTS_IN_FLIGHT])
            self._launch(operation)
        for operation in buffers:
            yield from self._wait(operation)

    def _reduce(self, gradients: tuple[int, ...]) -> Process:
        """Bring gradients into their buckets, and launch the buckets whose turn it is."""
        job = self._job
        first = gradients and gradients[0] == job.workload.arrival[0]
        for index in job.unused if first else ():
            self._in_bucket(index)
        for index in gradients:
            name = job.workload.parameters[index].name
            yield from self._work("copy", f"{name} into bucket", job.into_bucket_s(index))
            self._in_bucket(index)
            if not job.delayed:
                yield from self._launch_buckets()
        if job.delayed:
            yield from self._launch_buckets()

    def _in_bucket(self, index: int) -> None:
        number = self._bucket_of[index]
        self._pending[number] -= 1
        if not self._pending[number]:
            self._operations.buckets[number].ready = self._env.now

    def _launch_buckets(self) -> Process:
        """Launch buckets in strict order, as far as they are full."""
        buckets = self._job.buckets
        while self._launched < len(buckets) and not self._pending[self._launched]:
            number = self._launched
            self._launched += 1
            yield from self._work("copy", f"pack bucket {number}", self._job.pack_s(buckets[number]))
            self._communicator.launch(self._operations.buckets[number])
            if self._launched == len(buckets):
                for operation in self._operations.usage:
                    self._launch(operation)

    def _after_backward(self) -> Process:
        for number, bucket in enumerate(self._job.buckets):
            yield from self._wait(self._operations.buckets[number])
            yield from self._work("copy", f"bucket {number} to gradients", self._job.out_of_bucket_s(bucket))
        for operation in self._operations.usage:
            yield from self._wait(operation)

    def _launch(self, operation: Operation) -> None:
        operation.ready = self._env.now
        self._communicator.launch(operation)

    def _wait(self, operation: Operation) -> Process:
        begin = self._env.now
        yield operation.done
        if self._env.now > begin:
            self.spans.append(Span(begin, self._env.now, "wait", f"wait for {operation.name}"))

    def _compute(self, kind: str, name: str, seconds: float) -> Process:
        yield from self._work(kind, name, seconds * self.factor)

    def _work(self, kind: str, name: str, seconds: float) -> Process:
        """Be busy for as long as ``seconds`` of work take, more while collectives take compute units."""
        if not seconds:
            return
        env, contention, begin = self._env, self._job.costs.contention, self._env.now
        if contention:
            left = seconds
            while left > 0:
                since, pace = env.now, 1 - contention if self._communicator.active else 1.0
                done = env.timeout(left / pace)
                yield done | self._communicator.changed
                left = 0.0 if done.processed else left - (env.now - since) * pace
            self.contention += max(env.now - begin - seconds, 0.0)
        else:
            yield env.timeout(seconds)
        self.spans.append(Span(begin, env.now, kind, name))


def _summary(
    job: StepPlan, operations: _Operations, slowest: _RankProcess, paces: tuple[Pace, ...]
) -> TrainingStep:
    workload, accumulation = job.workload, job.ddp.accumulation
    own = next(pace for pace in paces if pace.slowdown == slowest.factor)
    passes = accumulation * (workload.forward_s + workload.backward_s)
    copy_s = (
        sum(job.into_bucket_s(index) for index in workload.arrival)
        + sum(job.pack_s(bucket) for bucket in job.buckets)
        + sum(job.out_of_bucket_s(bucket) for bucket in job.buckets)
    )
    everything = operations.all()
    hidden_s = job.costs.launch_s * len(everything) + sum(job.unpack_s(bucket) for bucket in job.buckets)
    runs: list[Reduction] = [operation.record for operation in everything]
    count = len(operations.buckets)
    first = len(operations.rebuild) + len(operations.buffers)
    return TrainingStep(
        workload=workload.name,
        ranks=job.ranks,
        samples=workload.batch * accumulation * job.ranks,
        step_s=slowest.end,
        forward_s=own.total("forward"),
        backward_s=own.total("backward"),
        optimizer_s=own.total("optimizer"),
        compute_s=(passes + job.costs.optimizer_s) * slowest.factor,
        contention_s=slowest.contention,
        copy_s=copy_s,
        communication_s=busy(runs),
        exposed_s=exposed(own.spans, runs),
        overhead_s=copy_s + hidden_s,
        buckets=tuple(runs[first : first + count]),
        others=(*runs[:first], *runs[first + count :]),
        paces=paces,
    )
