"""Topologies by name: their makers, and how a maker is given its count and its settings."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, PositiveInt, ValidationError, create_model

from topologies import clouds, fabrics, machines, supercomputers
from topologies.graph import Topology, TopologyError, check
from topologies.strict_yaml import complaints
from topologies.units import format_duration, format_rate

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
    "abci-v100": supercomputers.abci_v100,
    "abci-a100": supercomputers.abci_a100,
    "alps-gh200": supercomputers.alps_gh200,
    "polaris-a100": supercomputers.polaris_a100,
    "perlmutter-a100": supercomputers.perlmutter_a100,
    "summit-v100": supercomputers.summit_v100,
    "mn5-h100": supercomputers.mn5_h100,
    "kestrel-h100": supercomputers.kestrel_h100,
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

MAX_LINKS = 2**18
"""As many links a topology by name may have: 131,072 ranks on a star. Its graph is made in seconds."""

_MAX_DIGITS = 20


def settings(name: str) -> dict[str, str]:
    """The keys that ``--set`` takes for ``name``, each with its default as text."""
    return {
        key: _text(key, parameter.default)
        for key, parameter in list(inspect.signature(maker_of(name)).parameters.items())[1:]
    }


def make(name: str, count: int | str | None = None, values: Mapping[str, Any] | None = None) -> Topology:
    """The named topology with ``count`` ranks or machines and ``values`` in place of its defaults.

    Values may be text with units. Every complaint about them comes at once, in one `TopologyError`.
    """
    return made(name, maker_of(name), count, values)


def made(
    name: str, maker: Callable[..., Topology], count: int | str | None, values: Mapping[str, Any] | None
) -> Topology:
    """What a maker makes of a count and values that may be text; complaints call it ``name``."""
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
        known = ", ".join(MAKERS)
        raise TopologyError(f"{name!r} is no known cluster; write one of {known}, or a YAML file's name")
    return MAKERS[name]


def _text(key: str, value: Any) -> str:
    if isinstance(value, float):
        return format_duration(value) if "latency" in key else format_rate(value)
    return str(value)


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
