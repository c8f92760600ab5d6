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
from sim.libraries.nccl.graph.derive import system_of_graph
from sim.libraries.nccl.graph.system import SYSTEMS, System, find_system, nvlink_as_nccl_reckons
from topologies import Topology, described, load, make, num_machines
from topologies.disk import regular
from topologies.graph import name_of
from topologies.units import parse_rate


def is_machine(cluster: str) -> bool:
    """Whether the cluster is of machines that NCCL's model knows, by name or as a file describes them."""
    return cluster.partition(":")[0] in SYSTEMS or described.is_file(cluster)


def communicator_of(
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None,
    settings: Settings,
    graph_file: Path | None = None,
) -> Communicator | None:
    """The communicator of a cluster, ``None`` where a single rank is left alone.

    ``ranks``, all by default, are spread evenly over the machines that the cluster's name counts, or
    over as few as hold them. A ``graph_file`` is NCCL_GRAPH_DUMP_FILE, or an NCCL_DEBUG log.
    """
    name, system, nodes = _machines(cluster, values)
    if nodes is None:
        nodes = -(-(ranks or 1) // system.gpus)
    gpus, rest = divmod(nodes * system.gpus if ranks is None else ranks, nodes)
    if rest or not 1 <= gpus <= system.gpus:
        raise ValueError(
            f"{ranks} ranks on {nodes} {name} with {system.gpus} GPUs each; write as many for every machine"
        )
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


def _machines(cluster: "str | Topology", values: Mapping[str, Any]) -> tuple[str, System, int | None]:
    """What they are called, what one is, and how many there are where that is said."""
    if isinstance(cluster, str) and cluster.partition(":")[0].endswith((".yaml", ".yml")):
        cluster = load(cluster, values)
    if not isinstance(cluster, str):
        if not _is_listed(cluster):
            return name_of(cluster), system_of_graph(cluster), num_machines(cluster)
        values = cluster.graph.get("settings", {})
        cluster = f"{name_of(cluster)}:{num_machines(cluster)}"
    name, _, count = cluster.partition(":")
    if count and (not count.isdecimal() or not int(count)):
        raise ValueError(f"{cluster!r}: {count!r} is not a count; write for example {name}:4")
    return name, _changed(_system(name), values), int(count) if count else None


def _is_listed(graph: Topology) -> bool:
    """Whether the topology is of the catalogue's machines, whose figures NCCL's model has by name."""
    name = name_of(graph)
    if name not in SYSTEMS:
        return False
    listed = make(name, num_machines(graph), graph.graph.get("settings", {}))
    return bool(graph.adj == listed.adj and graph.nodes == listed.nodes)


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


def _changed(system: System, values: Mapping[str, Any]) -> System:
    """The machine with other figures; as NCCL has no preset of it, its graphs then come by the plain rule."""
    known = ("nvlink", "nic", "pcie", "socket")
    unknown = [key for key in values if key not in known]
    if unknown:
        raise ValueError(
            f"{system.name}: NCCL does not look at {unknown[0]}; allowed: {', '.join(known)}; "
            "write one of these, or --library ideal"
        )
    rates: dict[str, Any] = {key: parse_rate(str(value)) for key, value in values.items()}
    if "nvlink" in rates:
        rates["nvlink"] = nvlink_as_nccl_reckons(rates["nvlink"], system.compute_capability)
    changed = ", ".join(f"{key} {value}" for key, value in values.items())
    return replace(system, name=f"{system.name} with {changed}", **rates) if values else system
