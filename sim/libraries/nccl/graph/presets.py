"""The graphs of a machine: NCCL's own search results where they are known, a plain rule elsewhere.

``graphs.csv`` holds what NCCL's search finds on described machines with all GPUs in use. A node count
without a row uses the row of the nearest lower count above one: the rows of one machine are the same
from 2 to 512 nodes, because the search looks at one node and asks only whether there are others.
"""

import csv
from functools import cache
from importlib import resources

from sim.libraries.nccl.graph.graph import Graph, Graphs, PathClass
from sim.libraries.nccl.graph.search import search
from sim.libraries.nccl.graph.system import GB, SYSTEMS, System

ROWS_OF = {
    "dgx1-v100": "dgx1v",
    "dgx2-v100": "dgx2",
    "dgx-a100": "dgxa100",
    "dgx-h100": "dgxh100",
    "dgx-h200": "dgxh100",
    "dgx-b200": "dgxb200",
    "a100-pcie4": "pcie4a100",
    "h100-1gpu": "h100x1",
}
"""Which rows of ``graphs.csv`` hold for which machine."""


@cache
def graphs(system: System, nodes: int, gpus: int) -> Graphs:
    """The graphs of ``nodes`` machines with ``gpus`` GPUs of each in use."""
    preset = ROWS_OF.get(system.name)
    if preset is None or system != SYSTEMS[system.name] or gpus != system.gpus:
        return search(system, nodes, gpus)
    known = [count for name, count in rows() if name == preset and (count == 1) == (nodes == 1)]
    found = rows()[preset, max(count for count in known if count <= nodes)]
    ruled = search(system, nodes, gpus)
    collnet = {"collnet_direct": ruled.collnet_direct, "collnet_chain": ruled.collnet_chain}
    return Graphs.joined(found | {name: graph for name, graph in collnet.items() if graph is not None})


@cache
def rows() -> dict[tuple[str, int], dict[str, Graph]]:
    """``graphs.csv``: by machine and node count, the graphs by name."""
    text = resources.files("sim.libraries.nccl.graph").joinpath("graphs.csv").read_text(encoding="ascii")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found: dict[tuple[str, int], dict[str, Graph]] = {}
    for row in csv.DictReader(lines):
        found.setdefault((row["system"], int(row["nNodes"])), {})[row["graph"]] = Graph(
            pattern=row["pattern"],
            channels=int(row["nChannels"]),
            bw_intra=float(row["bwIntra"]) * GB,
            bw_inter=float(row["bwInter"]) * GB,
            type_intra=PathClass[row["typeIntra"]],
            type_inter=PathClass[row["typeInter"]],
            cross_nic=int(row["crossNic"]),
            same_channels=row["sameChannels"] == "1",
            latency_inter_us=float(row["latencyInter"]),
        )
    return found
