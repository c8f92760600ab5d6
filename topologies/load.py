"""What ``--cluster NAME[:COUNT]|FILE --set key=value`` means: a topology by name, or from a file."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ringside.topologies.catalogue import MAKERS, make, maker_of, split
from ringside.topologies.disk import regular
from ringside.topologies.fabrics.refitting import parted
from ringside.topologies.file import read
from ringside.topologies.graph import Topology, TopologyError
from ringside.topologies.graph import ranks as ranks_of
from ringside.topologies.importers import importer
from ringside.topologies.machines import described
from ringside.topologies.recipe import counted, imported, made_of, original


def load(
    cluster: str,
    values: Mapping[str, str] | None = None,
    *,
    ranks: int | None = None,
    nodes: int | None = None,
) -> Topology:
    """The topology that ``--cluster`` names: ``star:64``, ``dgx-h100``, a YAML file or a machine's file.

    In place of a YAML file's own count of machines, ``FILE:4`` counts where the file describes one machine
    (`ringside.topologies.machines.described`), or is still what its recipe makes; ``values`` change its keys.
    A machine's file is NCCL_TOPO_DUMP_FILE's XML or the table of ``nvidia-smi topo -m``, known by what
    is in it; ``FILE:4`` joins four such machines. Where the name carries no count, ``ranks`` or
    ``nodes`` gives it, whichever the topology counts; for ``ranks`` alone there are as few machines as
    hold them.
    """
    name, count = split(cluster)
    if name.endswith((".yaml", ".yml")) or Path(name).is_file():
        return _from_file(Path(name), count, ranks, nodes, values or {})
    maker_of(name)  # refuses what is none
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
    """As few machines as hold so many ranks, if that is said."""
    if count is None:
        return None
    return -(-count // len(ranks_of(machines(1, parted(values)[2]))))  # one needs no fabric


def counts(name: str) -> str | None:
    """What ``NAME:COUNT`` counts: nodes, ranks or leaves; nothing in a file in which a hand drew machines."""
    if name in MAKERS:
        return counted({"maker": name})
    recipe = recipe_in(load(name))
    return counted(recipe) if recipe else None


def in_catalogue(cluster: str) -> str:
    """What the catalogue calls the machines, of a file too that was written of them; else their own name."""
    name, _ = split(cluster)
    if name in MAKERS or not Path(name).is_file():
        return name
    return str(recipe_in(load(name)).get("maker", name))


def recipe_in(graph: Topology) -> Mapping[str, Any]:
    """What made a topology, if it has not been changed since; else nothing."""
    return graph.graph.get("recipe", {}) if original(graph) is not None else {}


def _from_file(
    path: Path, count: int | None, ranks: int | None, nodes: int | None, values: Mapping[str, str]
) -> Topology:
    text = ""
    with suppress(OSError):  # what cannot be read is refused below, in words
        text = regular(path).read_bytes().decode("utf-8", "replace")
    if importer(text):
        made = partial(imported, text, path.stem, str(path))
        return made(count or nodes or _few(made, ranks, values), values)
    if (content := described.content_of(text)) is not None:
        return described.topology(content, str(path), count, values)
    graph = read(path)
    if count is None and not values:
        return graph
    recipe = recipe_in(graph)
    if not recipe:
        raise TopologyError(
            f"{path}: a file of nodes and cables has no settings and holds all its machines; "
            f"{'leave the count out' if count else 'change the file in place of --set'}"
        )
    return made_of(recipe, str(path), count, values)
