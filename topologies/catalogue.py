"""Topologies by name: fabrics, which are code, and machines, which are files."""

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ringside.topologies import fabrics
from ringside.topologies.fabrics.fabric import MAX_LINKS
from ringside.topologies.fabrics.refitting import fields_of, parted
from ringside.topologies.graph import Topology, TopologyError
from ringside.topologies.machine import called, machine, machines
from ringside.topologies.making import defaults, made
from ringside.topologies.names import Lazy, one_of

__all__ = ["MAKERS", "MAX_LINKS", "make", "maker_of", "parse_settings", "settings", "split"]

_FABRICS: dict[str, Callable[..., Topology]] = {
    "star": fabrics.star,
    "leaf-spine": fabrics.leaf_spine,
    "fat-tree": fabrics.fat_tree,
    "rail-optimized": fabrics.rail_optimized,
    "torus": fabrics.torus,
    "dragonfly": fabrics.dragonfly,
    "nvlink_switch": fabrics.nvlink_switch,
}

MAKERS: Mapping[str, Callable[..., Topology]] = Lazy(
    lambda: [*_FABRICS, *machines()], lambda name: _FABRICS.get(name) or machine(name)
)
"""All named topologies; the first parameter of a maker counts ranks, machines or leaves."""

_MAX_DIGITS = 20

_FACTOR = re.compile(r"[\d.]+x")
"""A factor, as `whatif` has them."""


def settings(name: str) -> dict[str, str]:
    """Return the keys that ``--set`` accepts for ``name``, each with its default as text."""
    return defaults(maker_of(name))


def make(name: str, count: int | str | None = None, values: Mapping[str, Any] | None = None) -> Topology:
    """Return the named topology with ``count`` ranks or machines and ``values`` in place of its defaults.

    Values may be text with units. One `TopologyError` lists everything wrong with them.
    """
    maker, values = maker_of(name), changed(name, values or {})
    graph = made(name, maker, count, values)
    counted = {} if count is None else {next(iter(inspect.signature(maker).parameters)): count}
    graph.graph["recipe"] = {"maker": name, **counted, **(values or {})}
    return graph


def changed(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ from the named topology's defaults, however these are spelled.

    Values that cannot be parsed are kept; they are refused where they are used.
    """
    fabric = parted(values)[0]
    fields = {
        key: (one.annotation, one.default)
        for key, one in list(inspect.signature(maker_of(name)).parameters.items())[1:]
    } | (fields_of(fabric) if fabric else {})
    return {key: value for key, value in values.items() if not (key in fields and _is(value, *fields[key]))}


def _is(value: Any, annotation: Any, default: Any) -> bool:
    """Return whether a value, which may be text, equals the default."""
    if isinstance(value, bool):  # Python counts it as a number
        return False
    try:
        parsed = TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return False
    with suppress(TypeError, ValueError):  # a ratio is text that may be a number
        return bool(float(parsed) == float(default))
    return bool(parsed == default)


def split(cluster: str) -> tuple[str, int | None]:
    """Split ``NAME:COUNT`` into the catalogue's name and count; a file's name may contain colons."""
    name, colon, count = cluster.rpartition(":")
    if Path(cluster).is_file():
        return cluster, None
    if not colon or "/" in count or Path(count).suffix[1:].isalpha():
        return called(cluster), None
    if not count.isdecimal() or len(count) > _MAX_DIGITS or not int(count):
        raise TopologyError(f"{cluster!r}: {count[:20]!r} is not a count; write for example {name}:4")
    return name if Path(name).is_file() else called(name), int(count)


def maker_of(name: str) -> Callable[..., Topology]:
    """Return the maker of the named topology."""
    if name not in MAKERS:
        known = one_of(MAKERS, name, also=", or a YAML file's name")
        raise TopologyError(f"unknown cluster {name!r}; write {known}")
    return MAKERS[name]


def parse_settings(texts: list[str]) -> dict[str, str]:
    """Parse ``key=value`` texts into a mapping."""
    pairs = [text.partition("=") for text in texts]
    for text, (key, _, value) in zip(texts, pairs, strict=True):
        if not key or not value:
            raise TopologyError(f"{text!r} is not a setting; write for example bandwidth=25GB/s")
        if key != "shape" and _FACTOR.fullmatch(value):
            raise TopologyError(
                f"--set {text}: a setting is a figure such as 50GB/s; ringside whatif multiplies it, by "
                f"--try {text}"
            )
    settings: dict[str, str] = {}
    for key, _, value in pairs:
        if key in settings:
            raise TopologyError(f"--set {key} is given twice; write it once")
        settings[key] = value
    return settings
