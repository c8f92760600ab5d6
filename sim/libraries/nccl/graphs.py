"""The graphs of a communicator's machine, each searched for once.

NCCL searches on one node and asks only whether there are others, so two nodes have the graphs of 512.
"""

from functools import cache

from sim.libraries.nccl.graph import Graphs
from sim.libraries.nccl.nodes import Nodes
from sim.libraries.nccl.releases import release_of
from sim.libraries.nccl.search import search
from sim.libraries.nccl.system import System


def graphs(system: System, nodes: int, gpus: int, version: str) -> Graphs:
    """The graphs of ``nodes`` machines with ``gpus`` GPUs of each in use, by a release of NCCL."""
    return _searched(system, system.nodes, min(nodes, 2), gpus, release_of(version))


@cache
def _searched(system: System, _drawing: Nodes | None, nodes: int, gpus: int, release: str) -> Graphs:
    """Two files may have the same figures, but not the same drawing."""
    return search(system, nodes, gpus, release)
