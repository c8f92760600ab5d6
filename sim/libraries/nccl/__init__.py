"""NCCL's decisions before it moves a byte: graphs, algorithm, protocol, channels, chunks.

Written from NCCL's behaviour (v2.8 to v2.30) and checked against tables printed by NCCL's own compiled
code. NCCL's times are its estimates, in microseconds: good enough for NCCL's choice, not measurements.
"""

from ringside.sim.libraries.nccl.chunks import Chunking, channel_bytes, chunking
from ringside.sim.libraries.nccl.communicator import Communicator, Settings, communicator
from ringside.sim.libraries.nccl.device.connect import Tree, rings, trees
from ringside.sim.libraries.nccl.device.p2p import PointToPoint, point_to_point
from ringside.sim.libraries.nccl.files.graph_file import format_graphs, parse_graphs
from ringside.sim.libraries.nccl.files.log import Log, LoggedCommunicator, parse_log
from ringside.sim.libraries.nccl.files.log_graphs import logged_communicator
from ringside.sim.libraries.nccl.files.topo_file import system_of
from ringside.sim.libraries.nccl.graph.graph import Graph, Graphs, PathClass, SearchChannel
from ringside.sim.libraries.nccl.graph.system import SYSTEMS, System
from ringside.sim.libraries.nccl.pins import Pins
from ringside.sim.libraries.nccl.tuner import Choice, CostTable, cost_table

__all__ = [
    "SYSTEMS",
    "Choice",
    "Chunking",
    "Communicator",
    "CostTable",
    "Graph",
    "Graphs",
    "Log",
    "LoggedCommunicator",
    "PathClass",
    "Pins",
    "PointToPoint",
    "SearchChannel",
    "Settings",
    "System",
    "Tree",
    "channel_bytes",
    "chunking",
    "communicator",
    "cost_table",
    "format_graphs",
    "logged_communicator",
    "parse_graphs",
    "parse_log",
    "point_to_point",
    "rings",
    "system_of",
    "trees",
]
