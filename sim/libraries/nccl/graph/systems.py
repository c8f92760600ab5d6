"""The machines of the catalogue as NCCL sees them, by name."""

from functools import cache

from ringside.sim.libraries.nccl.graph.derive import system_of_graph
from ringside.sim.libraries.nccl.graph.system import System
from ringside.topologies.lazy import Lazy
from ringside.topologies.machines import is_nvidia, machine, nvidia_machines


@cache
def _system(name: str) -> System:
    return system_of_graph(machine(name)(2))


SYSTEMS = Lazy(nvidia_machines, _system, is_nvidia)
"""Machines by name, each derived from its file when it is looked up."""
