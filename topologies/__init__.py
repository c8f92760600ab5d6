"""What a cluster is made of: units, links, machines and the graphs that join them."""

if __name__ == "topologies":
    raise ImportError(
        "import ringside.topologies; the folder topologies of a checkout is part of that package"
    )


from ringside.topologies.catalogue import MAKERS, make, parse_settings, settings
from ringside.topologies.clouds import (
    aws_p4d,
    aws_p4de,
    aws_p5,
    azure_ndv4,
    azure_ndv5,
    gcp_a3mega,
    gcp_a4,
    hgx_h20,
    hgx_h800,
    mi300x,
    rtx4090_pcie,
)
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
from ringside.topologies.machines import (
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
from ringside.topologies.routing import Routes
from ringside.topologies.supercomputers import (
    abci_a100,
    abci_v100,
    alps_gh200,
    kestrel_h100,
    mn5_h100,
    perlmutter_a100,
    polaris_a100,
    summit_v100,
)

__all__ = [
    "MAKERS",
    "Routes",
    "Topology",
    "TopologyError",
    "a100_pcie4",
    "abci_a100",
    "abci_v100",
    "alps_gh200",
    "aws_p4d",
    "aws_p4de",
    "aws_p5",
    "azure_ndv4",
    "azure_ndv5",
    "check",
    "dgx1_v100",
    "dgx2_v100",
    "dgx_a100",
    "dgx_b200",
    "dgx_h100",
    "dgx_h200",
    "dragonfly",
    "fat_tree",
    "gb200_nvl72",
    "gcp_a3mega",
    "gcp_a4",
    "h100_1gpu",
    "hgx_h20",
    "hgx_h800",
    "kestrel_h100",
    "leaf_spine",
    "load",
    "make",
    "mi300x",
    "mn5_h100",
    "num_machines",
    "nvlink_switch",
    "parse_settings",
    "perlmutter_a100",
    "polaris_a100",
    "rail_optimized",
    "ranks",
    "rtx4090_pcie",
    "settings",
    "star",
    "summit_v100",
    "torus",
]
