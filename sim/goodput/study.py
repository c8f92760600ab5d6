"""Lives of one job, failure by failure, and their summary: its goodput, its spread and its confidence.

A life is simulated in SimPy: with missing nodes, and replicas that stop without them. Nothing is random
between two failures, so an event is a failure, a stage of a restart, a repair or the end; the checkpoints
written between are counted.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import simpy

from ringside.sim.goodput import formulas
from ringside.sim.goodput.job import LEAST_S, Cause, LongJob

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
    A lost node is away for ``repair_s``, by default as long as the job's others.
    """

    gap_s: float
    cause: Cause
    place: float = 0.0
    repair_s: float | None = None


Strikes = Callable[[np.random.Generator], Iterable[Strike]]
"""Draws the failures of a life."""


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
        for number, strike in enumerate(strikes):
            yield self.env.timeout(strike.gap_s)
            if not self.process.is_alive:
                return
            if number == MOST_STRIKES:
                raise ValueError(
                    f"after {number:,} failures {self._saved_s / self.job.work_s:.1%} of the work is done; "
                    "write a shorter interval, faster repairs, more spares, rarer failures or less work"
                )
            if self._waiting is None and strike.place * self._whole < self._replicas:
                self.process.interrupt(strike)

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
                    noticed = restart.noticed_s(stopped.cause.cause) if stopped.cause else 0.0
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

    def _notice(self, strike: Strike | None) -> None:
        """Record the failure that stopped the job; a lost node returns when it is repaired."""
        if strike:
            self._blamed = strike.cause
            self.failures[strike.cause.name] += 1
            if strike.cause.loses_node:
                self._broken += 1
                own_s = self.job.restart.repair_s
                self.env.process(self._repair(own_s if strike.repair_s is None else strike.repair_s))

    def _repair(self, repair_s: float) -> Steps:
        yield self.env.timeout(repair_s)
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
            cause = stop.cause.cause if stop.cause else self._blamed
            self._spend(WASTED, passed_s - count * cycle_s, cause)
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


MOST_FAILURES = 1_000_000
"""Maximum failures of all lives together; more would take minutes."""

_Z99 = 2.5758293035489004
"""99 % of a normal distribution lies within this number of standard deviations."""

QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True, slots=True)
class Goodput:
    """A job's goodput, by formula and by simulation, with a checkpoint every ``interval_s``.

    ``expected`` is `ringside.sim.goodput.formulas.expected_goodput`, ``first_order`` its first order.
    ``simulated`` is the work over the mean wall time of ``trials`` lives, ``low99`` and ``high99`` its
    confidence interval; ``p5``, ``p50`` and ``p95`` are quantiles of single lives. ``spent`` gives shares of
    all time by class, which add up to 1; ``failures`` and ``lost_s`` are means per life, by cause.
    """

    interval_s: float
    expected: float
    first_order: float
    simulated: float
    low99: float
    high99: float
    p5: float
    p50: float
    p95: float
    wall_s: float
    trials: int
    spent: dict[str, float]
    failures: dict[str, float]
    lost_s: dict[str, float]

    @property
    def badput(self) -> dict[str, float]:
        """Shares of all time that were lost, by class."""
        return {name: share for name, share in self.spent.items() if name != PRODUCTIVE}


def study(
    job: LongJob, interval_s: float, *, trials: int = 100, seed: int = 0, strikes: Strikes | None = None
) -> Goodput:
    """Simulate ``trials`` lives of the job; the same seed gives the same lives.

    ``strikes`` draws failures; by default they are independent, at the rates of the job's causes. Raise
    ValueError where the lives, or one of them, would take too long to simulate.
    """
    check_trials(trials, seed)
    wall = formulas.expected_wall(job, interval_s)
    if wall * job.rate * trials > MOST_FAILURES:
        raise ValueError(
            f"{wall * job.rate:.3g} failures in each of {trials} lives, which take {wall:.3g} s on "
            f"average; at most {MOST_FAILURES:,} are simulated: write a shorter interval, less work, "
            "rarer failures or fewer trials"
        )
    lives = [
        live(job, interval_s, strikes(rng) if strikes else random_strikes(job, rng))
        for rng in (np.random.default_rng([seed, number]) for number in range(trials))
    ]
    walls = np.array([one.wall_s for one in lives])
    mean = float(walls.mean())
    error = within99(trials) * float(walls.std(ddof=1)) / math.sqrt(trials)
    low, middle, high = (float(q) for q in np.quantile(job.work_s / walls, QUANTILES))
    return Goodput(
        interval_s=interval_s,
        expected=job.work_s / wall,
        first_order=formulas.first_order_goodput(job, interval_s),
        simulated=job.work_s / mean,
        low99=job.work_s / (mean + error),
        high99=min(1.0, job.work_s / max(mean - error, job.work_s)),
        p5=low,
        p50=middle,
        p95=high,
        wall_s=mean,
        trials=trials,
        spent={
            name: float(np.mean([one.spent_s[name] for one in lives])) / mean
            for name in (PRODUCTIVE, *BADPUT)
        },
        failures={
            cause.name: float(np.mean([one.failures[cause.name] for one in lives])) for cause in job.causes
        },
        lost_s={
            cause.name: float(np.mean([one.lost_s[cause.name] for one in lives])) for cause in job.causes
        },
    )


def within99(trials: int) -> float:
    """Return the 99 % confidence interval of a mean of ``trials`` lives, in standard errors.

    Student's t of ``trials - 1`` degrees of freedom by its expansion about the normal distribution, 26.7.5 of
    Abramowitz and Stegun's handbook; accurate to a thousandth from 10 lives on.
    """
    z, free = _Z99, trials - 1
    return (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )


def around(job: LongJob, best_s: float, points: int = 9, span: float = 16.0) -> Sequence[float]:
    """Return intervals about the best one, evenly spaced on a logarithmic scale, all possible for the job.

    They end where the expected goodput is a quarter of the best.
    """
    least = max(best_s / span, job.checkpoints.persist_s - job.checkpoints.write_s, LEAST_S)
    most = max(min(best_s * span, job.work_s), least * 1.001)
    first, last = (_nearer(job, end, best_s) for end in (least, most))
    return [float(one) for one in np.geomspace(first, last, points)]


def _nearer(job: LongJob, end_s: float, best_s: float) -> float:
    """Return the interval, or one nearer to the best, with a quarter of the best goodput."""
    worth = formulas.expected_goodput(job, best_s) / 4
    while formulas.expected_goodput(job, end_s) < worth:
        end_s = math.sqrt(end_s * best_s)
    return end_s


def check_trials(trials: int, seed: int) -> None:
    """Refuse too few lives for a spread, too many, and invalid seeds."""
    if not 10 <= trials <= 100_000:
        raise ValueError(f"{trials} trials; write 10 to 100000")
    if seed < 0:
        raise ValueError(f"seed {seed}; write 0 or more")
