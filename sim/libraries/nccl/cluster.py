"""The machine that ``--cluster`` names, for NCCL: its facts, its count, and changed figures."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringside.sim.libraries.nccl.communicator import Communicator, Settings, communicator, find_system
from ringside.sim.libraries.nccl.files.graph_file import parse_graphs
from ringside.sim.libraries.nccl.files.log import LoggedCommunicator, parse_log
from ringside.sim.libraries.nccl.files.log_graphs import logged_communicator
from ringside.sim.libraries.nccl.files.table_file import system_of_table
from ringside.sim.libraries.nccl.files.topo_file import WHAT, file_kind, is_amds, system_of
from ringside.sim.libraries.nccl.graph.paths import redrawn
from ringside.sim.libraries.nccl.graph.system import (
    GB,
    RATES,
    System,
    listed_system,
    nvlink_as_nccl_reckons,
    nvlink_in_datasheet,
    system_of_graph,
)
from ringside.topologies import MAKERS, Topology, load, machine_file, num_machines
from ringside.topologies.catalogue import changed as changed_of
from ringside.topologies.catalogue import settings as settings_of
from ringside.topologies.catalogue import split
from ringside.topologies.disk import regular
from ringside.topologies.fabrics.refitting import FABRICS, check_of_fabric, parted
from ringside.topologies.fabrics.structure import Machines
from ringside.topologies.file import DUMP, original, recipe_of
from ringside.topologies.graph import name_of
from ringside.topologies.importers import importer
from ringside.topologies.names import one_of
from ringside.topologies.units import parse_rate

SLOWEST_NIC = 1.2 * GB
"""Bytes/s of a card below which NCCL tries 0.24 and 0.12 GB/s, and five times that for two-node trees."""

MAX_RANKS_PER_GPU = 64
"""Maximum ranks per GPU: more would have less than one channel each (`MAX_CHANNELS`)."""


def is_machine(cluster: "str | Topology") -> bool:
    """Return whether NCCL's model covers the machines: by name, or by the facts of a file or a graph."""
    if not isinstance(cluster, str):
        return _named(cluster) is not None or _is_derived(cluster)
    name = split(cluster)[0]
    if listed_system(name) or machine_file.is_file(name) or _is_shown(Path(name)):
        return True
    try:
        return (name in MAKERS or _is_drawn(name)) and is_machine(load(name, ranks=1, nodes=1))
    except ValueError:  # an unreadable file is refused later, with a message
        return False


def _is_derived(graph: Topology) -> bool:
    """Return whether a topology states all of NCCL's inputs: NVIDIA GPUs, equally many on each machine."""
    try:
        system_of_graph(graph)
    except ValueError:
        return False
    return True


def _is_drawn(name: str) -> bool:
    """Return whether a file is YAML, by its suffix or because it is none of NCCL's or nvidia-smi's."""
    if name.endswith((".yaml", ".yml")):
        return True
    with suppress(ValueError):
        text = _text(Path(name)) if Path(name).is_file() else ""
        return bool(text) and file_kind(text) is None and importer(text) is None
    return False


def _is_shown(path: Path) -> bool:
    """Return whether NCCL or nvidia-smi wrote the file; unreadable files are refused elsewhere."""
    try:
        return _is_of_nvidia(_text(path))
    except ValueError:
        return False


def _is_of_nvidia(text: str) -> bool:
    return file_kind(text) is not None and not is_amds(text)


def as_measured(
    comm: Communicator,
    cluster: "str | Topology",
    values: Mapping[str, Any],
    measured: Mapping[str, Any],
    graph_file: Path | None = None,
) -> Communicator:
    """Return a cluster's communicator with the rates that its machines were ``measured`` with."""
    system = _machines(cluster, values, comm.ranks, measured)[1]
    # the same rates in another spelling are the same machine
    if system == comm.system or replace(system, name=comm.system.name) == comm.system:
        return comm
    return _with_graphs(system, comm.nodes, comm.gpus, comm.settings, graph_file)


def communicator_of(
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None,
    settings: Settings,
    graph_file: Path | None = None,
    *,
    packed: bool = False,
) -> Communicator | None:
    """Return the communicator of a cluster, ``None`` for a single rank.

    ``ranks``, all by default, are spread evenly over the number of machines in the cluster's name, or
    over as few as hold them if it has none or they are ``packed``. A ``graph_file`` is
    NCCL_GRAPH_DUMP_FILE, or an NCCL_DEBUG log.
    """
    name, system, nodes, graph = _machines(cluster, values, ranks)
    counted = -(-(ranks or 1) // system.ranks) if nodes is None else nodes
    count = ranks or counted * system.ranks
    gpus = min(count, system.ranks) if packed else max(count // counted, 1)
    nodes, rest = divmod(count, gpus)
    if rest or gpus > system.ranks or nodes > counted:
        instead = "" if packed or count > system.ranks else ", or `placement` packed"
        raise ValueError(
            f"{ranks} ranks on {counted} {name} with {system.ranks} GPUs each; "
            f"write equally many per machine{instead}"
        )
    if nodes * gpus == 1:
        return None
    comm = _with_graphs(system, nodes, gpus, settings, graph_file)
    if graph is None and isinstance(cluster, str) and "fabric" in values and parted(values)[0]:
        graph = _on_fabric(cluster, counted, values)
    drawn = graph is not None and isinstance(graph.graph.get("structure"), Machines)
    return replace(comm, network=graph) if drawn else comm


def _on_fabric(cluster: str, nodes: int, values: Mapping[str, Any]) -> Topology:
    """Return the topology of machines on a fabric, which NCCL does not see."""
    name = split(cluster)[0]
    known = settings_of(name) if name in MAKERS else ()
    fabric, of_fabric, of_machine = parted(values)
    rates = {key: value for key, value in of_machine.items() if key in known}
    return load(f"{name}:{nodes}", {"fabric": fabric or "", **of_fabric, **rates})


def _with_graphs(
    system: System, nodes: int, gpus: int, settings: Settings, graph_file: Path | None
) -> Communicator:
    """Return the communicator with the graphs of a file, or those that NCCL's search finds."""
    if graph_file is None:
        return communicator(system, nodes, gpus, settings=settings)
    text = _text(graph_file)
    kind = file_kind(text)
    if kind == "topology":
        raise ValueError(f"{graph_file} is {WHAT[kind]}, not a graph file; write --cluster {graph_file}")
    if kind == "graphs" or text.lstrip().startswith("<"):
        known = communicator(system, nodes, gpus, settings=settings)
        return communicator(system, nodes, gpus, graphs=parse_graphs(text, known.graphs), settings=settings)
    return _of_log(text, graph_file, system, nodes, gpus, settings)


def _of_log(text: str, path: Path, system: System, nodes: int, gpus: int, settings: Settings) -> Communicator:
    """Return the log's communicator of this shape; one without a number of nodes matches any."""
    log, ranks = parse_log(text), nodes * gpus
    complete = [logged for logged in log.communicators if logged.ranks]
    for logged in complete:
        if logged.ranks == ranks and logged.nodes in (0, nodes):
            if not logged.nodes:
                logged = replace(logged, nodes=nodes, gpus=gpus)
            garbled = f"garbled lines of the log that were skipped: {log.skipped}" if log.skipped else ""
            noted = replace(system, note="; ".join(filter(None, (system.note, garbled))))
            return logged_communicator(logged, noted, settings)
    if not complete:
        return logged_communicator(LoggedCommunicator(version=log.version), system, settings)
    shapes = dict.fromkeys(f"{logged.ranks} ranks on {logged.nodes or '?'} nodes" for logged in complete)
    raise ValueError(
        f"{path}: no communicator of {ranks} ranks on {nodes} nodes in this log, but of {', '.join(shapes)}"
    )


def machine(name: str, values: Mapping[str, Any]) -> System:
    """Return the machine of a name, or of a topology file or table, with ``values`` changed.

    ``nvlink``, ``pcie``, ``nic`` and ``socket`` are rates; ``gpus`` names the catalogue machine
    whose GPUs complete a topology file without them; ``ranks_per_gpu`` ranks share each GPU.
    """
    path, rest = Path(name), dict(values)
    if path.is_file():
        text = regular(path).read_text(encoding="utf-8", errors="replace")
        return _changed(_of_text(text, path.stem, name, str(rest.pop("gpus", ""))), rest)
    return _changed(find_system(name), changed_of(name, rest) if rest else {})


def _changed(system: System, values: Mapping[str, Any]) -> System:
    """Return a machine with other figures, or several ranks per GPU."""
    rates = {key: str(value) for key, value in values.items()}
    if "ranks_per_gpu" in rates:
        system = replace(system, ranks_per_gpu=_count(rates.pop("ranks_per_gpu")))
    unknown = [key for key in rates if key not in RATES]
    if "fabric" in unknown:
        fabric = rates["fabric"]
        raise ValueError(f"unknown fabric {fabric!r}; write {one_of(FABRICS, fabric)}, or --library ideal")
    if unknown:
        check_of_fabric(system.name, unknown)
        raise ValueError(
            f"{system.name}: NCCL does not use {unknown[0]}; allowed: {', '.join(RATES)}, "
            f"ranks_per_gpu, and fabric ({', '.join(FABRICS)}) with its settings; write one of these, "
            "or --library ideal"
        )
    figures = {key: parse_rate(text) for key, text in rates.items()}
    if figures.get("nic", SLOWEST_NIC) < SLOWEST_NIC:
        raise ValueError(
            f"nic is {rates['nic']}: NCCL's tuner overestimates cards below 9.6 Gb/s; write 9.6Gb/s or "
            "more, or --library ideal"
        )
    if "nvlink" in figures and not system.nvlink:
        raise ValueError(f"{system.name} has no NVLink; leave --set nvlink={rates['nvlink']} out")
    if "nvlink" in figures:
        figures["nvlink"] = nvlink_as_nccl_reckons(figures["nvlink"], system.compute_capability)
    changed = ", ".join(f"{key} {text}" for key, text in rates.items())
    return replace(redrawn(system, **figures), name=f"{system.name} with {changed}") if rates else system


def _with_rates(values: Mapping[str, Any], rates: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values, with all of their rates replaced by the given ones, if any."""
    if rates is None:
        return dict(values)
    others = {key: value for key, value in values.items() if key not in RATES}
    return others | {key: value for key, value in rates.items() if key in RATES}


def _of_text(text: str, name: str, source: str, gpus: str) -> System:
    """Parse a machine from NCCL's or nvidia-smi's text; errors name the ``source``."""
    kind = file_kind(text)
    match kind:
        case "topology":
            return system_of(text, name, gpus)
        case "table":
            if gpus:
                raise ValueError(f"{source}: a table has its GPUs; leave --set gpus={gpus} out")
            return system_of_table(text, name)
        case None:
            raise ValueError(
                f"{source} is neither {WHAT['topology']} nor {WHAT['table']}; NCCL's model reads no other"
            )
        case _:
            raise ValueError(f"{source} is {WHAT[kind]}, not of a whole machine; write it after --nccl-graph")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_RANKS_PER_GPU:
        raise ValueError(f"ranks_per_gpu is {text!r}; write a count of 1 to {MAX_RANKS_PER_GPU}")
    return int(text)


def _machines(
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None = None,
    measured: Mapping[str, Any] | None = None,
) -> "tuple[str, System, int | None, Topology | None]":
    """Return the machines' name, one machine, their number if stated, and their graph if read.

    Rates that they were ``measured`` with replace all set ones, in a file's recipe too.
    """
    if not isinstance(cluster, str):
        return _of_graph(cluster, measured)
    name, count = split(cluster)
    values = _with_rates(values, measured)
    if _is_drawn(name):
        rest = dict(values)
        sharing = _count(str(rest.pop("ranks_per_gpu", "1")))
        called, system, count, graph = _of_graph(load(cluster, rest), measured)
        return called, replace(system, ranks_per_gpu=sharing), count, graph
    if (
        not listed_system(name) and name in MAKERS
    ):  # a fabric or GPUs, refused with the parts that its graph lacks
        return _of_graph(load(cluster, values, ranks=ranks, nodes=1), measured)
    return name, machine(name, parted(values)[2] if "fabric" in values else values), count, None


def _of_graph(
    graph: Topology, measured: Mapping[str, Any] | None = None
) -> tuple[str, System, int, Topology]:
    """Return the same of a topology; an unchanged named machine or file has more facts."""
    if named := _named(graph):
        system, values = named[0], _with_rates(named[1], measured)
        system = _changed(system, parted(values)[2] if "fabric" in values else values)
    else:
        system = system_of_graph(graph)
    return name_of(graph), system, num_machines(graph), graph


def _named(graph: Topology) -> tuple[System, Mapping[str, Any]] | None:
    """Return the machine, and the settings beside it, from which a topology was made unchanged."""
    recipe = dict(recipe_of(graph))
    if listed_system(str(recipe.get("maker"))) and original(graph) is None:
        recipe |= _drawn_rates(graph, str(recipe["maker"]))
        graph = graph.copy()
        graph.graph["recipe"] = dict(recipe)
    maker, name, text = (str(recipe.pop(key, "")) for key in ("maker", "name", DUMP))
    system = listed_system(maker)
    is_known = system or (text and _is_of_nvidia(text))
    if not is_known or original(graph) is None:
        return None
    recipe.pop("nodes", None)
    if system:
        return system, changed_of(maker, recipe)
    return _of_text(text, name, name, str(recipe.pop("gpus", ""))), recipe


def _drawn_rates(graph: Topology, name: str) -> dict[str, str]:
    """Return changed rates of a named machine's topology; empty if they match no machine."""
    with suppress(ValueError):
        system = system_of_graph(graph)
        rates = {key: getattr(system, key) for key in RATES if key in settings_of(name)}
        if "nvlink" in rates:
            rates["nvlink"] = nvlink_in_datasheet(system.nvlink, system.compute_capability)
        return {key: f"{rate!r}B/s" for key, rate in rates.items()}
    return {}


def _text(path: Path) -> str:
    try:
        return regular(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read: {error.strerror}; write NCCL_GRAPH_DUMP_FILE's or a log's name"
        ) from None
