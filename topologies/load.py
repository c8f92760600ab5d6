"""Resolve ``--cluster NAME[:COUNT]|FILE --set key=value`` to a topology, by name or from a file."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ringside.topologies import machine_file
from ringside.topologies.catalogue import MAKERS, make, maker_of, split
from ringside.topologies.disk import regular
from ringside.topologies.fabrics.refitting import parted
from ringside.topologies.file import counted, imported, made_of, original, read
from ringside.topologies.graph import Topology, TopologyError
from ringside.topologies.graph import ranks as ranks_of
from ringside.topologies.hardware import GPUS, Gpu
from ringside.topologies.importers import importer
from ringside.topologies.machine import machine, machines


def load(
    cluster: str,
    values: Mapping[str, str] | None = None,
    *,
    ranks: int | None = None,
    nodes: int | None = None,
) -> Topology:
    """Return the topology that ``--cluster`` names: ``star:64``, ``dgx-h100``, a YAML or a machine's file.

    The count of ``FILE:4`` replaces a YAML file's own count of machines if the file describes a machine
    (`ringside.topologies.machine_file`) or still equals what its recipe makes; ``values`` change its
    keys. A machine's file is NCCL_TOPO_DUMP_FILE's XML or the table of ``nvidia-smi topo -m``, recognised
    by its content; ``FILE:4`` joins four such machines. If the name has no count, ``ranks`` or ``nodes``
    gives it, whichever the topology counts; for ``ranks`` alone the cluster has the fewest machines that
    hold them.
    """
    name, count = split(cluster)
    if name.endswith((".yaml", ".yml")) or Path(name).is_file():
        return _from_file(Path(name), count, ranks, nodes, values or {})
    maker_of(name)  # refuses an unknown name
    what = counted({"maker": name})
    if count is None and what not in (values or {}):
        match what:
            case "ranks":
                count = ranks
            case "nodes":
                count = nodes or _few(partial(make, name), ranks, values or {})
    return make(name, count, values)


def _few(
    machines: Callable[[int, Mapping[str, Any]], Topology], count: int | None, values: Mapping[str, Any]
) -> int | None:
    """Return the fewest machines that hold ``count`` ranks, or None without a count."""
    if count is None:
        return None
    return -(-count // len(ranks_of(machines(1, parted(values)[2]))))  # one machine needs no fabric


class ClusterName(NamedTuple):
    """What ``NAME:COUNT`` names.

    ``machine`` is the machines' name in the catalogue, also for a file written from it, else ``name``.
    ``counts`` is what COUNT counts, nodes, ranks or leaves; None for a file with a graph of its own.
    ``gpu_in_logs`` matches the names of a catalogue machine's GPUs in logs, in capitals. ``hosts`` are the
    operating systems in each machine: more than one share NVLink.
    """

    name: str
    machine: str
    counts: str | None
    gpu_in_logs: re.Pattern[str] | None
    hosts: int


def parse_name(cluster: str) -> ClusterName:
    """Parse the name of a cluster; read a file to find what it describes."""
    name, _ = split(cluster)
    recipe: Mapping[str, Any] = {"maker": name} if name in MAKERS else {}
    hosts = 1
    if not recipe and Path(name).is_file():
        graph = load(name)
        recipe, hosts = recipe_in(graph), int(graph.graph.get("nccl", {}).get("hosts", 1))
    called = str(recipe.get("maker", name))
    known = machine(called) if called in machines() else None
    counts = counted(recipe) if recipe else None
    return ClusterName(
        name, called, counts, known.in_logs if known else None, known.hosts if known else hosts
    )


def gpu_of(cluster: str, values: Mapping[str, str] | None = None) -> Gpu | None:
    """Return the GPU of a cluster's machines, by its name or as the usual one of its compute capability.

    Plain networks, which state neither, get that of 80. None stands for a GPU without a file.
    """
    name, _ = split(cluster)
    if name in machines() and (gpu := machine(name).gpu):
        return GPUS[gpu]
    stated = (make(name, 1) if name in MAKERS else load(cluster, values)).graph
    if "device" in stated:
        return GPUS.get(stated["device"])
    capability = stated.get("compute_capability", 80)
    usual = [gpu for gpu in GPUS.values() if gpu.usual and gpu.compute_capability == capability]
    return usual[0] if usual else None


def recipe_in(graph: Topology) -> Mapping[str, Any]:
    """Return the recipe of a topology that is still what it makes; otherwise an empty one."""
    return graph.graph.get("recipe", {}) if original(graph) is not None else {}


def _from_file(
    path: Path, count: int | None, ranks: int | None, nodes: int | None, values: Mapping[str, str]
) -> Topology:
    text = ""
    with suppress(OSError):  # an unreadable file is refused below with a message
        text = regular(path).read_bytes().decode("utf-8", "replace")
    if importer(text):
        made = partial(imported, text, path.stem, str(path))
        return made(count or nodes or _few(made, ranks, values), values)
    if (content := machine_file.content_of(text)) is not None:
        return machine_file.topology(content, str(path), count, values)
    graph = read(path)
    if count is None and not values:
        return graph
    recipe = recipe_in(graph)
    if not recipe:
        raise TopologyError(
            f"{path}: a file of nodes and cables has no settings and holds all its machines; "
            f"{'leave the count out' if count else 'change the file instead of --set'}"
        )
    return made_of(recipe, str(path), count, values)
