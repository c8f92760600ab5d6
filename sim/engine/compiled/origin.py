"""Compiled: moments after a change of origin; see `ringside.sim.clock`."""

from typing import Any

from ringside.sim.engine.compiled.memory import array_at
from ringside.sim.engine.compiled.world import FLOAT, connections, gates, link_at, waiting
from ringside.sim.jit import compiled


@compiled
def move_origin(world: Any, time: float) -> None:
    """Count from ``time``, at which nothing is under way and all earlier events are over."""
    world.origin += time
    world.until -= time
    world.finished = 0.0
    for number in range(world.num_links):
        link = link_at(world, number)
        link.free = 0.0
        link.parts = 0
    for number in range(world.num_connections):
        connections(world)[number].clear = 0.0
    adders = array_at(world.adders, world.num_ends, FLOAT)
    for end in range(world.num_ends):
        adders[end] = 0.0
    for slot in range(world.fresh):
        waiting(world)[slot].ready = 0.0
    for gate in range(world.fresh_gate):
        gates(world)[gate].ready = 0.0
