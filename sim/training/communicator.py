"""The process group at work: a queue of collectives, and the workers that take from it."""

from collections.abc import Generator
from typing import Any

import simpy

from sim.collective import Collective
from sim.training.groups import ProcessGroup
from sim.training.step import Reduction

Process = Generator[simpy.Event, Any, None]


class Operation:
    """One collective of a step on its way; ``done`` happens when its result may be used.

    It begins when all of its ``waiting`` parties have launched it: data can only meet where both
    sides are, so a rank that comes early waits for the last. ``unpack_s`` passes after its last byte,
    without holding up other collectives.
    """

    def __init__(
        self, env: simpy.Environment, name: str, collective: Collective, waiting: int, unpack_s: float = 0.0
    ) -> None:
        self.name = name
        self.collective = collective
        self.waiting = waiting
        self.unpack_s = unpack_s
        self.done: simpy.Event = env.event()
        self.ready = self.launched = self.start = self.end = self.finish = 0.0

    @property
    def record(self) -> Reduction:
        """What happened, once it is over."""
        return Reduction(
            self.name,
            self.collective.kind,
            self.collective.nbytes,
            self.ready,
            self.launched,
            self.start,
            self.end,
            self.finish,
        )


class CollectiveQueue:
    """Carries out operations in the order in which they are launched, ``group.workers`` at a time.

    ``active`` are on their way; ``changed`` happens when that number does.
    """

    def __init__(self, env: simpy.Environment, group: ProcessGroup, launch_s: float) -> None:
        self._env = env
        self._launch_s = launch_s
        self._workers = simpy.Resource(env, group.workers)
        self._carry = group.carrier(env)
        self.active = 0
        self.changed: simpy.Event = env.event()

    def launch(self, operation: Operation) -> None:
        """Ask for the operation on behalf of one party; returns at once, as an asynchronous call does."""
        operation.launched = self._env.now
        self._env.process(self._run(operation))

    def _run(self, operation: Operation) -> Process:
        if self._launch_s:
            yield self._env.timeout(self._launch_s)
        operation.waiting -= 1
        if operation.waiting:
            return
        with self._workers.request() as worker:
            yield worker
            operation.start = self._env.now
            self._change(1)
            yield from self._carry(operation.collective)
            operation.end = self._env.now
            self._change(-1)
        if operation.unpack_s:
            yield self._env.timeout(operation.unpack_s)
        operation.finish = self._env.now
        operation.done.succeed()

    def _change(self, by: int) -> None:
        self.active += by
        self.changed.succeed()
        self.changed = self._env.event()
