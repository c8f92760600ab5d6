"""The graphs of a communicator's machine; NCCL's search runs once per machine.

NCCL searches on one node and only checks whether there are others, so two nodes have the graphs of 512.
A search takes up to seconds, so the graphs of listed machines are stored beside this file:

    python -m ringside.sim.libraries.nccl.graph [NAME]
"""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ringside.sim.libraries.nccl.graph.graph import Graph, Graphs, PathClass, SearchChannel
from ringside.sim.libraries.nccl.graph.search import search
from ringside.sim.libraries.nccl.graph.system import System, listed_system
from ringside.sim.libraries.nccl.releases import RELEASES, release_of

KEPT = Path(__file__).parent / "kept"


@cache
def graphs(system: System, nodes: int, gpus: int, version: str) -> Graphs:
    """Return the graphs of ``nodes`` machines with ``gpus`` GPUs of each in use, for a release of NCCL."""
    nodes, release = min(nodes, 2), release_of(version)
    if gpus == system.ranks and system == listed_system(system.name):
        kept = _kept(system.name)
        number = kept["of"].get(f"{nodes} nodes", {}).get(release)
        if number is not None:
            return _read(kept["graphs"][number])
    return _searched(system, nodes, gpus, release)


_searched = cache(search)


def search_results(system: System) -> dict[str, Any]:
    """Return a machine's distinct graphs, and those that each release finds on 1 and 2 nodes."""
    different: list[Graphs] = []
    places: dict[str, dict[str, int]] = {}
    for nodes in (1, 2) if system.nics else (1,):
        if nodes * system.ranks == 1:
            continue
        for release in RELEASES:
            result = search(system, nodes, system.ranks, release)
            if result not in different:
                different.append(result)
            places.setdefault(f"{nodes} nodes", {})[release] = different.index(result)
    return {"of": places, "graphs": [_written(result) for result in different]}


@cache
def _kept(name: str) -> dict[str, Any]:
    path = KEPT / f"{name}.json"
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"of": {}}
    return kept


def _written(result: Graphs) -> dict[str, Any]:
    return {
        name: graph | {"type_intra": graph["type_intra"].name, "type_inter": graph["type_inter"].name}
        for name, graph in asdict(result).items()
        if graph
    }


def _read(kept: dict[str, Any]) -> Graphs:
    return Graphs(**{name: _graph(**fields) for name, fields in kept.items()})


def _graph(*, type_intra: str, type_inter: str, order: list[dict[str, list[int]]], **rest: Any) -> Graph:
    channels = (SearchChannel(tuple(one["gpus"]), tuple(one["nics"])) for one in order)
    return Graph(
        type_intra=PathClass[type_intra], type_inter=PathClass[type_inter], order=tuple(channels), **rest
    )
