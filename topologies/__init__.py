"""What a cluster is made of: units, links, machines and the graphs that join them."""

from topologies.catalogue import MAKERS, make, settings
from topologies.fabrics import leaf_spine, nvlink_switch, star
from topologies.graph import Topology, TopologyError, check, num_machines, ranks
from topologies.load import load, parse_settings
from topologies.machines import (
    a100_pcie4,
    dgx1_v100,
    dgx2_v100,
    dgx_a100,
    dgx_b200,
    dgx_h100,
    dgx_h200,
    gb200_nvl72,
    h100_1gpu,
)
from topologies.routing import Routes

__all__ = [
    "MAKERS",
    "Routes",
    "Topology",
    "TopologyError",
    "a100_pcie4",
    "check",
    "dgx1_v100",
    "dgx2_v100",
    "dgx_a100",
    "dgx_b200",
    "dgx_h100",
    "dgx_h200",
    "gb200_nvl72",
    "h100_1gpu",
    "leaf_spine",
    "load",
    "make",
    "num_machines",
    "nvlink_switch",
    "parse_settings",
    "ranks",
    "settings",
    "star",
]
