"""Topologies by name: their makers, and how a maker is given its count and its settings."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, PositiveInt, TypeAdapter, ValidationError, create_model

from ringside.topologies import clouds, fabrics, hosts, machines, supercomputers
from ringside.topologies.fabric import MAX_LINKS
from ringside.topologies.graph import Topology, TopologyError, check
from ringside.topologies.refitting import FABRICS, fields_of, keys_of, parted, refitted
from ringside.topologies.strict_yaml import complaints
from ringside.topologies.units import format_setting, shown
from ringside.topologies.words import one_of

__all__ = ["MAKERS", "MAX_LINKS", "made", "make", "maker_of", "parse_settings", "settings", "split"]

MAKERS: dict[str, Callable[..., Topology]] = {
    "star": fabrics.star,
    "leaf-spine": fabrics.leaf_spine,
    "fat-tree": fabrics.fat_tree,
    "rail-optimized": fabrics.rail_optimized,
    "torus": fabrics.torus,
    "dragonfly": fabrics.dragonfly,
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
    "abci-v100": supercomputers.abci_v100,
    "abci-a100": supercomputers.abci_a100,
    "alps-gh200": supercomputers.alps_gh200,
    "polaris-a100": supercomputers.polaris_a100,
    "perlmutter-a100": supercomputers.perlmutter_a100,
    "summit-v100": supercomputers.summit_v100,
    "mn5-h100": supercomputers.mn5_h100,
    "kestrel-h100": supercomputers.kestrel_h100,
    "mare-nostrum": hosts.mare_nostrum,
    "leonardo": hosts.leonardo,
    "aws-p4d": clouds.aws_p4d,
    "aws-p4de": clouds.aws_p4de,
    "aws-p5": clouds.aws_p5,
    "gcp-a3mega": clouds.gcp_a3mega,
    "gcp-a4": clouds.gcp_a4,
    "azure-ndv4": clouds.azure_ndv4,
    "azure-ndv5": clouds.azure_ndv5,
    "hgx-h800": clouds.hgx_h800,
    "hgx-h20": clouds.hgx_h20,
    "rtx4090-pcie": clouds.rtx4090_pcie,
    "mi300x": clouds.mi300x,
}
"""Every named topology; the first parameter of a maker is its count, of ranks, of machines or of leaves."""

COMPUTE_CAPABILITY = {
    **dict.fromkeys(("dgx1-v100", "dgx2-v100", "abci-v100", "summit-v100"), 70),
    **dict.fromkeys(("dgx-a100", "a100-pcie4", "abci-a100", "polaris-a100", "perlmutter-a100"), 80),
    **dict.fromkeys(("aws-p4d", "aws-p4de", "azure-ndv4"), 80),
    "rtx4090-pcie": 89,
    **dict.fromkeys(("dgx-h100", "dgx-h200", "h100-1gpu", "alps-gh200", "mn5-h100", "kestrel-h100"), 90),
    **dict.fromkeys(("aws-p5", "gcp-a3mega", "azure-ndv5", "hgx-h800", "hgx-h20"), 90),
    **dict.fromkeys(("dgx-b200", "gb200-nvl72", "gcp-a4"), 100),
}
"""NVIDIA's number of the GPU generation, by the name of the machine: 90 for sm_90."""

_SIZED = (fabrics.fat_tree, fabrics.rail_optimized, fabrics.torus, fabrics.dragonfly)

_MAX_DIGITS = 20


def settings(name: str) -> dict[str, str]:
    """The keys that ``--set`` takes for ``name``, each with its default as text."""
    return defaults(maker_of(name))


def defaults(maker: Callable[..., Topology]) -> dict[str, str]:
    """A maker's keys behind its count, each with its default as text."""
    return {
        key: format_setting(key, parameter.default)
        for key, parameter in list(inspect.signature(maker).parameters.items())[1:]
    }


def make(name: str, count: int | str | None = None, values: Mapping[str, Any] | None = None) -> Topology:
    """The named topology with ``count`` ranks or machines and ``values`` in place of its defaults.

    Values may be text with units. Every complaint about them comes at once, in one `TopologyError`.
    """
    maker, values = maker_of(name), changed(name, values or {})
    graph = made(name, maker, count, values)
    counted = {} if count is None else {next(iter(inspect.signature(maker).parameters)): count}
    graph.graph["recipe"] = {"maker": name, **counted, **(values or {})}
    return graph


def changed(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that make the named topology another, without those that say its defaults in any spelling.

    What cannot be read stays, to be refused where it is used.
    """
    fabric = parted(values)[0]
    fields = {
        key: (one.annotation, one.default)
        for key, one in list(inspect.signature(maker_of(name)).parameters.items())[1:]
    } | (fields_of(fabric) if fabric else {})
    return {key: value for key, value in values.items() if not (key in fields and _is(value, *fields[key]))}


def _is(value: Any, annotation: Any, default: Any) -> bool:
    """Whether a value that may be text is the default."""
    if isinstance(value, bool):  # which is no number here
        return False
    try:
        found = TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return False
    with suppress(TypeError, ValueError):  # a ratio is text that may be a number
        return bool(float(found) == float(default))
    return bool(found == default)


def made(
    name: str, maker: Callable[..., Topology], count: int | str | None, values: Mapping[str, Any] | None
) -> Topology:
    """What a maker makes of a count and values that may be text; complaints call it ``name``."""
    parameters = list(inspect.signature(maker).parameters.values())
    first = parameters[0]
    fabric, of_fabric, given = parted(values or {})
    _check_fabric(name, first.name, fabric, given, [p.name for p in parameters])
    for key, value in given.items():
        if isinstance(value, bool):  # else true were 1
            raise TopologyError(f"{name}: {key}: {shown(value)} is neither a number nor a word")
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
        names = [p.name for p in parameters]
        allowed = [*names, *(key for key in _more_keys(first.name, fabric) if key not in names)]
        raise TopologyError(complaints(error, name, allowed)) from None
    arguments = checked.model_dump()
    _check_links(name, maker, arguments, first.name)
    if fabric is None:
        graph = maker(**arguments)
    else:
        graph = refitted(maker(**arguments | {"nodes": 2}), arguments["nodes"], fabric, of_fabric)
    changed = {key: value for key, value in (values or {}).items() if key != first.name}
    if changed:
        graph.graph["settings"] = changed
    check(graph)
    return graph


def _check_links(name: str, maker: Callable[..., Topology], arguments: dict[str, Any], counted: str) -> None:
    """Refuse a count that makes too many links; a fabric counts its own (`fabric.check_size`)."""
    count, most = arguments[counted], MAX_LINKS // 2
    if count > 2 and maker not in _SIZED:
        most = int(MAX_LINKS / (maker(**arguments | {counted: 2}).number_of_edges() / 2))
    if count > most:
        raise TopologyError(
            f"{name}: {counted} is {count}; allowed: 1 to {most}, which have {MAX_LINKS} links"
        )


def _more_keys(counted: str, fabric: str | None) -> list[str]:
    """What may be set beside a maker's own: a fabric where machines are counted, or its settings."""
    if fabric is not None:
        return keys_of(fabric)
    return ["fabric"] if counted == "nodes" else []


def _check_fabric(
    name: str, counted: str, fabric: str | None, given: Mapping[str, Any], keys: list[str]
) -> None:
    """Refuse a fabric that is not known, and one for what is no machine."""
    if fabric is not None and counted != "nodes":
        raise TopologyError(f"{name}: fabric is {fabric}, but these are no machines with cards; leave it out")
    if fabric is None and "fabric" in given and counted == "nodes":
        known = [*(("star", "rail") if "fabric" in keys else ()), *FABRICS]
        if given["fabric"] not in known:
            raise TopologyError(f"{name}: fabric is {shown(given['fabric'])}; allowed: {', '.join(known)}")


def split(cluster: str) -> tuple[str, int | None]:
    """The name and the count of ``NAME:COUNT``; the name, if a file's, may hold colons itself."""
    name, colon, count = cluster.rpartition(":")
    if not colon or Path(cluster).is_file() or "/" in count or Path(count).suffix[1:].isalpha():
        return cluster, None
    if not count.isdecimal() or len(count) > _MAX_DIGITS or not int(count):
        raise TopologyError(f"{cluster!r}: {count[:20]!r} is not a count; write for example {name}:4")
    return name, int(count)


def maker_of(name: str) -> Callable[..., Topology]:
    """What makes the named topology."""
    if name not in MAKERS:
        known = one_of(MAKERS, name, also=", or a YAML file's name")
        raise TopologyError(f"{name!r} is no known cluster; write {known}")
    return MAKERS[name]


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
