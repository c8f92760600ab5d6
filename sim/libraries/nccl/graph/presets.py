"""The graphs of a communicator's machine, each searched for once.

NCCL searches on one node and asks only whether there are others, so two nodes have the graphs of 512.
"""

from functools import cache

from sim.libraries.nccl.graph.graph import Graphs
from sim.libraries.nccl.graph.search import search
from sim.libraries.nccl.graph.system import System
from sim.libraries.nccl.releases import release_of


def graphs(system: System, nodes: int, gpus: int, version: str) -> Graphs:
    """The graphs of ``nodes`` machines with ``gpus`` GPUs of each in use, by a release of NCCL."""
    return _searched(system, min(nodes, 2), gpus, release_of(version))


_searched = cache(search)
