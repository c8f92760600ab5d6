"""What ``--cluster`` means to NCCL: a machine that it knows, how many, and which figures are changed."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.libraries.nccl.communicator import Communicator, Settings, communicator
from sim.libraries.nccl.files.graph_file import parse_graphs
from sim.libraries.nccl.files.log import parse_log
from sim.libraries.nccl.files.log_graphs import logged_communicator
from sim.libraries.nccl.files.topo_file import system_of
from sim.libraries.nccl.graph.system import SYSTEMS, System, find_system, nvlink_as_nccl_reckons
from topologies.disk import regular
from topologies.units import parse_rate


def is_machine(cluster: str) -> bool:
    """Whether the cluster is of machines whose graphs NCCL's model knows."""
    return cluster.partition(":")[0] in SYSTEMS


def communicators(
    cluster: str,
    values: Mapping[str, str],
    counts: list[int] | None,
    ranks: int | None,
    settings: Settings,
    graph_file: Path | None = None,
) -> dict[int, Communicator | None]:
    """The communicator of each node count, ``None`` where a single rank is left alone.

    ``counts`` defaults to the count in the cluster's name. ``ranks`` are spread evenly. A
    ``graph_file`` (NCCL_GRAPH_DUMP_FILE, or an NCCL_DEBUG log) holds for one node count.
    """
    name, _, count = cluster.partition(":")
    if counts is None:
        if count and not count.isdecimal():
            raise ValueError(f"{cluster!r}: {count!r} is not a count; write for example {name}:4")
        counts = [int(count or 1)]
    system = _changed(_system(name), values)
    return {nodes: _communicator(system, nodes, ranks, settings, graph_file) for nodes in counts}


def _communicator(
    system: System, nodes: int, ranks: int | None, settings: Settings, graph_file: Path | None
) -> Communicator | None:
    if nodes < 1:
        raise ValueError(f"{nodes} nodes; write 1 or more")
    if ranks is not None and (ranks < 1 or ranks % nodes):
        raise ValueError(
            f"{ranks} ranks do not spread evenly over {nodes} nodes; write a multiple of {nodes}"
        )
    gpus = system.gpus if ranks is None else ranks // nodes
    if nodes * gpus == 1:
        return None
    if graph_file is None:
        return communicator(system, nodes, gpus, settings=settings)
    text = _text(graph_file)
    if text.lstrip().startswith("<"):
        return communicator(system, nodes, gpus, graphs=parse_graphs(text), settings=settings)
    for logged in parse_log(text).communicators:
        if (logged.nodes, logged.ranks) == (nodes, nodes * gpus):
            return logged_communicator(logged, system, settings)
    raise ValueError(f"{graph_file}: no communicator of {nodes * gpus} ranks on {nodes} nodes in this log")


def _text(path: Path) -> str:
    try:
        return regular(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read: {error.strerror}; write NCCL_GRAPH_DUMP_FILE's or a log's name"
        ) from None


def _system(name: str) -> System:
    path = Path(name)
    return system_of(path.read_text(encoding="utf-8")) if path.is_file() else find_system(name)


def _changed(system: System, values: Mapping[str, str]) -> System:
    """The machine with other figures; as NCCL has no preset of it, its graphs then come by the plain rule."""
    known = ("nvlink", "nic", "pcie")
    unknown = [key for key in values if key not in known]
    if unknown:
        raise ValueError(f"{system.name}: NCCL does not look at {unknown[0]}; allowed: {', '.join(known)}")
    rates: dict[str, Any] = {key: parse_rate(text) for key, text in values.items()}
    if "nvlink" in rates:
        rates["nvlink"] = nvlink_as_nccl_reckons(rates["nvlink"], system.compute_capability)
    changed = ", ".join(f"{key} {text}" for key, text in values.items())
    return replace(system, name=f"{system.name} with {changed}", **rates) if values else system
