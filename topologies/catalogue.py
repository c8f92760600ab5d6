"""Topologies by name: what ``--cluster NAME[:NODES] --set key=value`` means."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, PositiveInt, ValidationError, create_model

from topologies import fabrics, machines
from topologies.disk import regular
from topologies.graph import Topology, TopologyError, check
from topologies.importers import importer
from topologies.units import format_duration, format_rate, shown

MAKERS: dict[str, Callable[..., Topology]] = {
    "star": fabrics.star,
    "leaf-spine": fabrics.leaf_spine,
    "nvlink_switch": fabrics.nvlink_switch,
    "dgx1-v100": machines.dgx1_v100,
    "dgx2-v100": machines.dgx2_v100,
    "dgx-a100": machines.dgx_a100,
    "dgx-h100": machines.dgx_h100,
    "dgx-h200": machines.dgx_h200,
    "dgx-b200": machines.dgx_b200,
    "gb200-nvl72": machines.gb200_nvl72,
    "a100-pcie4": machines.a100_pcie4,
    "h100-1gpu": machines.h100_1gpu,
}
"""Every named topology; the first parameter of a maker is its count, of ranks, of machines or of leaves."""

MAX_LINKS = 2**18
"""As many links a topology by name may have: 131,072 ranks on a star. Its graph is made in seconds."""


def settings(name: str) -> dict[str, str]:
    """The keys that ``--set`` takes for ``name``, each with its default as text."""
    return {
        key: _text(key, parameter.default)
        for key, parameter in list(inspect.signature(_maker(name)).parameters.items())[1:]
    }


def make(name: str, count: int | str | None = None, values: Mapping[str, Any] | None = None) -> Topology:
    """The named topology with ``count`` ranks or machines and ``values`` in place of its defaults.

    Values may be text with units. Every complaint about them comes at once, in one `TopologyError`.
    """
    return _made(name, _maker(name), count, values)


def _made(
    name: str, maker: Callable[..., Topology], count: int | str | None, values: Mapping[str, Any] | None
) -> Topology:
    parameters = list(inspect.signature(maker).parameters.values())
    first = parameters[0]
    given = dict(values or {})
    if count is not None:
        if first.name in given:
            raise TopologyError(f"{name}: {first.name} is set beside the count in the name; leave one out")
        given[first.name] = count
    fields: dict[str, Any] = {
        p.name: (PositiveInt if p is first else p.annotation, ... if p.default is p.empty else p.default)
        for p in parameters
    }
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    try:
        checked = model(**given)
    except ValidationError as error:
        raise TopologyError(complaints(error, name, [p.name for p in parameters])) from None
    arguments = checked.model_dump()
    if arguments[first.name] > 2:
        links = maker(**arguments | {first.name: 2}).number_of_edges() / 2  # of each rank or machine
        most = int(MAX_LINKS / links)
        if arguments[first.name] > most:
            raise TopologyError(
                f"{name}: {first.name} is {arguments[first.name]}; allowed: 1 to {most}, "
                f"which have {MAX_LINKS} links"
            )
    graph = maker(**arguments)
    changed = {key: value for key, value in given.items() if key != first.name}
    if changed:
        graph.graph["settings"] = changed
    check(graph)
    return graph


def load(
    cluster: str,
    values: Mapping[str, str] | None = None,
    *,
    ranks: int | None = None,
    nodes: int | None = None,
) -> Topology:
    """The topology that ``--cluster`` names: ``star:64``, ``dgx-h100``, a YAML file or a machine's file.

    A machine's file is NCCL_TOPO_DUMP_FILE's XML or the table of ``nvidia-smi topo -m``, known by what
    is in it; ``FILE:4`` joins four such machines. Where the name carries no count, ``ranks`` or
    ``nodes`` gives it, whichever the topology counts.
    """
    name, colon, count = cluster.rpartition(":")
    if not colon or Path(cluster).is_file():
        name, count = cluster, ""
    if count and not count.isdecimal():
        raise TopologyError(f"{cluster!r}: {count!r} is not a count; write for example {name}:4")
    if name.endswith((".yaml", ".yml")) or Path(name).is_file():
        return _from_file(Path(name), int(count) if count else None, nodes, values)
    counted = next(iter(inspect.signature(_maker(name)).parameters))
    implied = {"ranks": ranks, "nodes": nodes}.get(counted) if counted not in (values or {}) else None
    return make(name, count or implied, values)


def _from_file(
    path: Path, count: int | None, nodes: int | None, values: Mapping[str, str] | None
) -> Topology:
    from topologies.file import read

    text = ""
    with suppress(OSError):  # what cannot be read is refused below, in words
        text = regular(path).read_bytes().decode("utf-8", "replace")
    maker = importer(text)
    if maker:
        graph = _made(str(path), maker, nodes if count is None else count, values)
        graph.graph["name"] = path.stem
        return graph
    if values:
        raise TopologyError(f"{path}: a file has no settings; change the file in place of --set")
    if count is not None:
        raise TopologyError(f"{path}: a YAML file holds all its machines; leave the count {count} out")
    return read(path)


def parse_settings(texts: list[str]) -> dict[str, str]:
    """``key=value`` texts as a mapping."""
    pairs = [text.partition("=") for text in texts]
    for text, (key, _, value) in zip(texts, pairs, strict=True):
        if not key or not value:
            raise TopologyError(f"{text!r} is not a setting; write for example bandwidth=25GB/s")
    settings: dict[str, str] = {}
    for key, _, value in pairs:
        if key in settings:
            raise TopologyError(f"--set {key} stands twice; write it once")
        settings[key] = value
    return settings


def complaints(error: ValidationError, name: str, allowed: list[str]) -> str:
    """Pydantic's errors in our words, one a line, each with its place."""
    lines = []
    for problem in error.errors(include_url=False):
        place = ".".join(str(part) for part in problem["loc"])
        match problem["type"]:
            case "extra_forbidden" | "unexpected_keyword_argument":
                text = f"is not known; allowed: {', '.join(allowed)}"
            case "missing":
                text = "is missing"
            case "value_error":
                text = str(problem["ctx"]["error"])
            case _:
                text = f"{shown(problem['input'])}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
        lines.append(f"{name}: {place}: {text}")
    return "\n".join(lines)


def _maker(name: str) -> Callable[..., Topology]:
    if name not in MAKERS:
        known = ", ".join(MAKERS)
        raise TopologyError(f"{name!r} is no known cluster; write one of {known}, or a YAML file's name")
    return MAKERS[name]


def _text(key: str, value: Any) -> str:
    if isinstance(value, float):
        return format_duration(value) if "latency" in key else format_rate(value)
    return str(value)
