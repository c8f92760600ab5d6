"""A long job's life, failure by failure, in SimPy: with missing nodes, and replicas that stop without them.

Nothing is random between two failures, so an event is a failure, a stage of a restart, a repair or the end;
the checkpoints written between are counted.
"""

import math
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import simpy

from ringside.sim.goodput.job import Cause, LongJob

PRODUCTIVE = "productive"
START, SAVE, RESTORE = "start-up", "checkpoint save", "checkpoint restore"
WASTED, RECOVERY, SHRUNK = "wasted progress", "infrastructure recovery", "missing replicas"
BADPUT = (WASTED, SAVE, RESTORE, START, RECOVERY, SHRUNK)
"""Unproductive time, in the classes of Google's ML Productivity Goodput library.

``start-up`` has its accelerator initialization, training preparation and program start-up; ``missing
replicas``, Ringside's own, is the work of replicas that were missing."""

MOST_STRIKES = 50_000
"""Maximum failures of a simulated life."""

_BLOCK = 256

Stage = tuple[str, float]
Steps = Generator[simpy.Event, Any, None]


class Strike(NamedTuple):
    """A failure: seconds since the one before, its cause, and the node it hits.

    ``place`` runs from 0, the job's first node, to 1; a failure of a node outside of the job has no effect.
    """

    gap_s: float
    cause: Cause
    place: float = 0.0


@dataclass(frozen=True, slots=True)
class Life:
    """One simulated run: its duration, its time by class, the failures by cause, and their cost."""

    wall_s: float
    spent_s: dict[str, float]
    failures: dict[str, int]
    lost_s: dict[str, float]


def live(job: LongJob, interval_s: float, strikes: Iterable[Strike]) -> Life:
    """Return the job's life with a checkpoint every ``interval_s`` seconds, under these failures.

    Nodes that are not in the job do not fail, and there are no failures while it waits for a node.
    """
    env = simpy.Environment()
    run = _Run(env, job, job.check_interval(interval_s))
    env.process(run.strike(strikes))
    env.run(until=run.process)
    return Life(float(env.now), run.spent, run.failures, run.lost)


def random_strikes(job: LongJob, rng: np.random.Generator) -> Iterator[Strike]:
    """Yield endless random failures at the rates of the job's causes."""
    while job.rate:
        gaps = rng.exponential(job.mtbf_s, _BLOCK).tolist()
        which = rng.choice(len(job.causes), _BLOCK, p=job.shares).tolist()
        places = rng.random(_BLOCK).tolist()
        for gap, cause, place in zip(gaps, which, places, strict=True):
            yield Strike(gap, job.causes[cause], place)


class _Run:
    """A job from its first start until its work is done; `process` is its life."""

    def __init__(self, env: simpy.Environment, job: LongJob, interval_s: float) -> None:
        self.env, self.job, self.interval_s = env, job, interval_s
        self.spent = dict.fromkeys((PRODUCTIVE, *BADPUT), 0.0)
        self.failures = {cause.name: 0 for cause in job.causes}
        self.lost = {cause.name: 0.0 for cause in job.causes}
        self._whole = job.nodes // (job.replica_nodes or job.nodes)
        self._replicas = self._whole
        self._saved_s = 0.0
        self._broken = 0
        self._waiting: simpy.Event | None = None
        self._blamed: Cause | None = None
        self.process = env.process(self._life())

    def strike(self, strikes: Iterable[Strike]) -> Steps:
        """Strike the nodes of the job with failures."""
        for number, (gap, cause, place) in enumerate(strikes):
            yield self.env.timeout(gap)
            if not self.process.is_alive:
                return
            if number == MOST_STRIKES:
                raise ValueError(
                    f"after {number:,} failures {self._saved_s / self.job.work_s:.1%} of the work is done; "
                    "write a shorter interval, faster repairs, more spares, rarer failures or less work"
                )
            if self._waiting is None and place * self._whole < self._replicas:
                self.process.interrupt(cause)

    def _possible(self) -> int:
        """Return the number of whole replicas that could run now."""
        there = min(self.job.nodes, self.job.nodes + self.job.spares - self._broken)
        return max(there, 0) * self._whole // self.job.nodes

    def _life(self) -> Steps:
        restart = self.job.restart
        begin: list[Stage] = [(START, restart.start_s)]
        stopped: simpy.Interrupt | None = None
        while True:
            try:
                if stopped:
                    noticed = restart.noticed_s(stopped.cause) if stopped.cause else 0.0
                    yield from self._gather(noticed + restart.stop_s)
                    begin = [
                        (RECOVERY, self._meeting_s()), (START, restart.start_s), (RESTORE, restart.load_s)
                    ]  # fmt: skip
                yield from self._pass(begin)
                yield from self._train()
                return
            except simpy.Interrupt as stop:
                self._notice(stop.cause)
                stopped = stop

    def _notice(self, cause: Cause | None) -> None:
        """Record the cause that stopped the job; a lost node returns when it is repaired."""
        if cause:
            self._blamed = cause
            self.failures[cause.name] += 1
            if cause.loses_node:
                self._broken += 1
                self.env.process(self._repair())

    def _repair(self) -> Steps:
        yield self.env.timeout(self.job.restart.repair_s)
        self._broken -= 1
        if self._waiting:
            if self._possible() and not self._waiting.triggered:
                self._waiting.succeed()
        elif self.process.is_alive and self._possible() > self._replicas:
            self.process.interrupt(None)  # a waiting node restarts all ranks

    def _gather(self, noticed_s: float) -> Steps:
        """Detect the failure and stop all ranks; wait for a node if too few are left."""
        yield from self._pass([(RECOVERY, noticed_s)])
        if not self._possible():
            begin, self._waiting = self.env.now, self.env.event()
            yield self._waiting
            self._waiting = None
            self._spend(RECOVERY, self.env.now - begin, self._blamed)
        self._replicas = self._possible()

    def _meeting_s(self) -> float:
        """Return the rendezvous time, which includes waiting for more nodes where some are missing."""
        restart = self.job.restart
        return restart.rendezvous_s + (restart.last_call_s if self._replicas < self._whole else 0.0)

    def _pass(self, stages: list[Stage]) -> Steps:
        """Go through the stages; time passed counts, whether they end or are interrupted."""
        begin = self.env.now
        try:
            yield self.env.timeout(sum(seconds for _, seconds in stages))
        finally:
            left = self.env.now - begin
            for name, seconds in stages:
                self._spend(name, min(left, seconds), self._blamed)
                left -= min(left, seconds)

    def _train(self) -> Steps:
        """Train to the end of the work, or to an interruption; keep the checkpointed part."""
        speed = self._replicas / self._whole
        left_s = (self.job.work_s - self._saved_s) / speed
        write_s, persist_s = self.job.checkpoints.write_s, self.job.checkpoints.persist_s
        count = math.ceil(left_s / self.interval_s * (1 - 1e-12))
        begin = self.env.now
        try:
            yield self.env.timeout(left_s + count * write_s + persist_s)
        except simpy.Interrupt as stop:
            passed_s, cycle_s = self.env.now - begin, self.interval_s + write_s
            count = max(0, math.floor((passed_s - persist_s) / cycle_s))
            self._keep(count * self.interval_s, count, speed)
            self._spend(WASTED, passed_s - count * cycle_s, stop.cause or self._blamed)
            raise
        self._keep(left_s, count, speed)
        self._spend(SAVE, persist_s, None)

    def _keep(self, seconds: float, checkpoints: int, speed: float) -> None:
        """Count training and its checkpoints, which a restart finds again."""
        self._saved_s += seconds * speed
        self._spend(PRODUCTIVE, seconds * speed, None)
        self._spend(SHRUNK, seconds * (1 - speed), self._blamed)
        self._spend(SAVE, checkpoints * self.job.checkpoints.write_s, None)

    def _spend(self, name: str, seconds: float, cause: Cause | None) -> None:
        self.spent[name] += seconds
        if cause:
            self.lost[cause.name] += seconds
