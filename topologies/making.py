"""Call makers of topologies with a count and with settings, which may be text with units."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError, create_model

from ringside.topologies import fabrics
from ringside.topologies.fabrics.fabric import MAX_LINKS
from ringside.topologies.fabrics.refitting import FABRICS, check_of_fabric, keys_of, parted, refitted
from ringside.topologies.graph import Topology, TopologyError, check
from ringside.topologies.strict_yaml import complaints
from ringside.topologies.units import format_setting, shown

_SIZED = (fabrics.fat_tree, fabrics.rail_optimized, fabrics.torus, fabrics.dragonfly)


def defaults(maker: Callable[..., Topology]) -> dict[str, str]:
    """Return a maker's keys after its count, each with its default as text."""
    return {
        key: format_setting(key, parameter.default)
        for key, parameter in list(inspect.signature(maker).parameters.items())[1:]
    }


def made(
    name: str, maker: Callable[..., Topology], count: int | str | None, values: Mapping[str, Any] | None
) -> Topology:
    """Call a maker with a count and values that may be text; errors name it ``name``."""
    parameters = list(inspect.signature(maker).parameters.values())
    first = parameters[0]
    fabric, of_fabric, given = parted(values or {})
    _check_fabric(name, first.name, fabric, given, [p.name for p in parameters])
    for key, value in given.items():
        if isinstance(value, bool):  # Python counts true as 1
            raise TopologyError(f"{name}: {key}: {shown(value)} is neither a number nor text")
    if count is not None:
        if first.name in given:
            raise TopologyError(f"{name}: {first.name} is set and the name has a count; remove one of them")
        given[first.name] = count
    arguments = arguments_of(name, maker, given, _more_keys(first.name, fabric))
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


def arguments_of(
    name: str, maker: Callable[..., Topology], values: Mapping[str, Any], more: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a maker's arguments, parsed from values that may be text; ``more`` keys are allowed too."""
    model = _model(maker)
    try:
        return model(**values).model_dump()
    except ValidationError as error:
        allowed = list(dict.fromkeys([*model.model_fields, *more]))
        raise TopologyError(complaints(error, name, allowed)) from None


@lru_cache(maxsize=64)
def _model(maker: Callable[..., Topology]) -> type[BaseModel]:
    first, *rest = inspect.signature(maker).parameters.values()
    fields: dict[str, Any] = {
        first.name: (PositiveInt, ... if first.default is first.empty else first.default)
    }
    fields |= {p.name: (p.annotation, ... if p.default is p.empty else p.default) for p in rest}
    return create_model("arguments", __config__=ConfigDict(extra="forbid"), **fields)


def _check_links(name: str, maker: Callable[..., Topology], arguments: dict[str, Any], counted: str) -> None:
    """Refuse a count that makes too many links; fabrics have their own check (`fabric.check_size`)."""
    count, most = arguments[counted], MAX_LINKS // 2
    if count > 2 and maker not in _SIZED:
        most = int(MAX_LINKS / (maker(**arguments | {counted: 2}).number_of_edges() / 2))
    if count > most:
        raise TopologyError(
            f"{name}: {counted} is {count}; allowed: 1 to {most}, which have {MAX_LINKS} links"
        )


def _more_keys(counted: str, fabric: str | None) -> list[str]:
    """Return the keys besides a maker's own: ``fabric`` for machines, or the fabric's settings."""
    if fabric is not None:
        return keys_of(fabric)
    return ["fabric"] if counted == "nodes" else []


def _check_fabric(
    name: str, counted: str, fabric: str | None, given: Mapping[str, Any], keys: list[str]
) -> None:
    """Refuse an unknown fabric, a fabric's settings without it, and one for a topology without machines."""
    if fabric is not None and counted != "nodes":
        raise TopologyError(f"{name}: a fabric needs machines with cards; leave fabric={fabric} out")
    if fabric is None and "fabric" not in given and counted == "nodes":
        check_of_fabric(name, given.keys() - set(keys))
    if fabric is None and "fabric" in given and counted == "nodes":
        known = [*(("star", "rail") if "fabric" in keys else ()), *FABRICS]
        if given["fabric"] not in known:
            raise TopologyError(f"{name}: fabric is {shown(given['fabric'])}; allowed: {', '.join(known)}")
