"""Parts of a cluster: units, links, machines and the graphs that join them."""

if __name__ == "topologies":
    raise ImportError(
        "import ringside.topologies; the folder topologies of a checkout is part of that package"
    )

from collections.abc import Callable

from ringside.topologies.catalogue import MAKERS, make, parse_settings, settings
from ringside.topologies.fabrics import (
    dragonfly,
    fat_tree,
    leaf_spine,
    nvlink_switch,
    rail_optimized,
    star,
    torus,
)
from ringside.topologies.graph import Topology, TopologyError, check, num_machines, ranks
from ringside.topologies.load import load
from ringside.topologies.routing import Routes

__all__ = [
    "MAKERS",
    "Routes",
    "Topology",
    "TopologyError",
    "check",
    "dragonfly",
    "fat_tree",
    "leaf_spine",
    "load",
    "make",
    "num_machines",
    "nvlink_switch",
    "parse_settings",
    "rail_optimized",
    "ranks",
    "settings",
    "star",
    "torus",
]


def __getattr__(name: str) -> Callable[..., Topology]:
    """Return the maker of a machine in the catalogue: ``dgx_h100`` makes dgx-h100."""
    machine = name.replace("_", "-")
    if machine.startswith("-") or machine not in MAKERS:
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    return MAKERS[machine]
