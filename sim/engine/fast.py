"""The fast engine: it does what `ringside.sim.engine.events` does, in its order, on arrays and without SimPy.

Where no two transfers compete, as in a ring, time is a recurrence (`ringside.sim.engine.maxplus`). Pipelines
on a star of equal links go rank by rank, in rounds (`ringside.sim.engine.rounds`). Everything else goes
through an event loop on arrays (`ringside.sim.engine.compiled`). Numba compiles both once. Connections'
transfers are streamed: by rule where the schedule has one (`ringside.sim.streams.TransferStreams`), else step
by step on demand.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ringside.sim import effort, jit
from ringside.sim.effort import uncollected
from ringside.sim.engine import events, maxplus, rounds
from ringside.sim.engine.wiring import Ints, SimulatedCollective, Wiring, check_ranks, wire
from ringside.sim.schedule import Schedule, ScheduleError, Step
from ringside.sim.streams import TransferStreams
from ringside.topologies import Routes, Topology
from ringside.topologies.extras import install

_RATES = 8
"""Initial number of moments at which a message's rate, or a link's remaining rate, may change."""

_STEPS = 1 << 17
"""Transfers fetched from a schedule at a time."""


def simulate(
    schedule: Schedule, graph: Topology, gamma: float = 0.0, routes: Routes | None = None
) -> SimulatedCollective:
    """Play one schedule alone on a topology, as `ringside.sim.engine.events.simulate` does.

    The answer names the engine: without Numba only rings are played here, and SimPy plays the rest.
    """
    check_ranks(schedule, graph)
    routes = routes or Routes(graph)
    with uncollected():
        if not schedule.connections():
            return SimulatedCollective(0.0, 0, engine="fast")
        wiring = wire(schedule, graph, routes)
        ring = maxplus.ring_of(schedule, wiring)
        if ring:
            return maxplus.simulate(ring, schedule, gamma)
        if jit.available():
            star = rounds.star_of(schedule, wiring, gamma)
            effort.consider(schedule, graph, "rounds" if star else "fast")
            transfers = int(wiring.count.sum())
            run = rounds.simulate(star, transfers) if star else _loop(schedule, wiring, gamma)
            if run.num_transfers < transfers:
                name = f"{schedule.algorithm} {schedule.collective.kind}"
                raise ScheduleError(f"{name}: transfers wait for each other")
            return run
    effort.say(f"Numba is not installed, so SimPy plays this; {install('fast')}")
    return events.simulate(schedule, graph, gamma, routes=routes)


def is_compiled(schedule: Schedule) -> bool:
    """Check whether the schedule's player is already compiled on this machine."""
    if not jit.available():
        return False
    from ringside.sim.engine.compiled import loop
    from ringside.sim.engine.compiled import rounds as by_rounds

    in_rounds = isinstance(schedule.steps, TransferStreams)
    return jit.is_kept(loop.play) and (not in_rounds or jit.is_kept(by_rounds.play))


def _loop(schedule: Schedule, wiring: Wiring, gamma: float) -> SimulatedCollective:
    """Run the compiled loop; restart it with more memory where needed."""
    from ringside.sim.engine.compiled import loop, world
    from ringside.sim.engine.compiled.make import CompiledWorld

    if not jit.is_kept(loop.play):
        effort.say("compiling the event loop, once on this machine; about 20 seconds")
    generosity, rates = 1, _RATES
    while True:
        state = CompiledWorld(schedule, wiring, gamma, generosity, rates)
        record, steps = state.record, _rows(schedule, wiring)
        while (status := loop.play(record)) in (world.GOING, world.HUNGRY):
            if status == world.HUNGRY:
                moves, starts = next(steps)
                state.hold(moves=moves, starts=starts)
                record["step"], record["num_steps"] = 0, len(starts) - 1
            effort.show(int(record["done"]), int(record["to_do"]))
        if status == world.OVER:
            break
        if status == world.FULL:
            generosity *= 4
        else:
            rates *= 4
    return SimulatedCollective(
        float(record["origin"] + record["finished"]), int(record["done"]), engine="fast"
    )


def _rows(schedule: Schedule, wiring: Wiring) -> Iterator[tuple[Any, Ints]]:
    """Yield some steps at a time: rows (connection, chunk, span, whether to add), and each step's start."""
    from ringside.sim.engine.compiled.world import MOVE

    ends, channels = schedule.ends, int(wiring.channel.max()) + 1
    keys = (wiring.src * ends + wiring.dst) * channels + wiring.channel
    order = np.argsort(keys)
    keys = keys[order]
    steps = schedule.steps()
    while some := list(_some(steps)):
        src, dst, channel, chunk, span, reduce = (
            np.concatenate([getattr(step, name) for step in some])
            for name in ("src", "dst", "channel", "chunk", "span", "reduce")
        )
        connection = order[np.searchsorted(keys, (src * ends + dst) * channels + channel)]
        moves = np.empty(len(src), dtype=MOVE)
        moves["connection"], moves["chunk"], moves["span"], moves["reduce"] = connection, chunk, span, reduce
        yield moves, np.cumsum([0, *map(len, some)])


def _some(steps: Iterator[Step]) -> Iterator[Step]:
    taken = 0
    for step in steps:
        yield step
        taken += len(step)
        if taken >= _STEPS:
            return
