"""The machines that NCCL's model knows by name, each with its source."""

from dataclasses import replace

from ringside.sim.libraries.nccl.graph.system import GB, System
from ringside.topologies.machines import CUBE_MESH

# 8 H100 behind NVSwitch, eight 400G NICs, Sapphire Rapids (NVIDIA DGX H100/H200 user guide)
_DGX_H100 = System("dgx-h100", 90, 8, 8, 50 * GB, 370.8 * GB, 48 * GB, 22 * GB, True, "intel")

_CUBE_MESH = (
    *((0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 1)),
    *((2, 6, 2), (3, 7, 2), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 1)),
)
"""NVLinks of a DGX-1 with V100 in the description from which NCCL's own channels were printed.

The pairs are those of `ringside.topologies.machines.CUBE_MESH`, as in ``nvidia-smi``'s output; there 2-3
and 6-7 are the double ones in place of 2-6 and 3-7. Speeds and channel counts are the same on both."""

SYSTEMS = {
    system.name: system
    for system in (
        # 8 V100, six NVLinks each in a hybrid cube mesh, a 100G NIC for every two GPUs, Broadwell
        # (NVIDIA DGX-1 with Tesla V100 system architecture, WP-08437-002, 2017)
        System(
            *("dgx1-v100", 70, 8, 4, 12.5 * GB, 120 * GB, 12 * GB, 6 * GB, False, "intel"),
            gpus_per_switch=2,
            mesh=_CUBE_MESH,
            cabling=tuple((a, b, links) for (a, b), links in CUBE_MESH.items()),
        ),
        # 16 V100 behind NVSwitch, eight 100G NICs, Skylake (NVIDIA DGX-2 user guide)
        System("dgx2-v100", 70, 16, 8, 12.5 * GB, 120 * GB, 12 * GB, 10 * GB, True, "intel", 2),
        # 8 A100 behind NVSwitch, eight 200G NICs, two and two on a switch, Rome (NVIDIA DGX A100 user guide)
        System("dgx-a100", 80, 8, 8, 25 * GB, 240 * GB, 24 * GB, 16 * GB, True, "amd", 2),
        _DGX_H100,
        # the same machine with 8 H200, whose larger memory NCCL ignores
        replace(_DGX_H100, name="dgx-h200"),
        # 8 B200 behind NVSwitch, eight 400G NICs, Emerald Rapids (NVIDIA DGX B200 user guide)
        System("dgx-b200", 100, 8, 8, 50 * GB, 721.8 * GB, 48 * GB, 40 * GB, True, "intel"),
        # 18 trays of 4 GPUs in one NVLink domain, which NCCL counts as one node; a 400G NIC a GPU, Grace
        # (NVIDIA GB200 NVL72 data sheet, 2024)
        System(
            *("gb200-nvl72", 100, 72, 72, 50 * GB, 721.8 * GB, 48 * GB, 6 * GB, True, "arm"),
            gpus_per_switch=0,
            sockets=36,
            c2c=450 * GB,
            hosts=18,
        ),
        # two A100 PCIe and one 100G NIC on a PCIe switch of each of two Ice Lake sockets, no NVLink
        System("a100-pcie4", 80, 4, 2, 12.5 * GB, 0, 24 * GB, 10 * GB, False, "intel", 2),
        # one H100 and one 400G NIC
        System("h100-1gpu", 90, 1, 1, 50 * GB, 370.8 * GB, 48 * GB, 22 * GB, False, "intel"),
        # supercomputers: `ringside.topologies.supercomputers` says where each layout is published
        System("abci-v100", 70, 4, 2, 12.5 * GB, 120 * GB, 12 * GB, 10 * GB, False, "intel", 2),
        System("abci-a100", 80, 8, 4, 25 * GB, 240 * GB, 24 * GB, 10 * GB, True, "intel", 2),
        System(
            *("alps-gh200", 90, 4, 4, 25 * GB, 370.8 * GB, 24 * GB, 6 * GB, False, "arm"),
            gpus_per_switch=0,
            sockets=4,
            c2c=450 * GB,
        ),
        System(
            *("polaris-a100", 80, 4, 2, 25 * GB, 240 * GB, 24 * GB, 16 * GB, False, "amd"),
            gpus_per_switch=0,
            sockets=4,
            beside=(1, 3),
        ),
        System(
            *("perlmutter-a100", 80, 4, 4, 25 * GB, 240 * GB, 24 * GB, 16 * GB, False, "amd"),
            gpus_per_switch=0,
            sockets=4,
        ),
        System(
            *("summit-v100", 70, 6, 2, 12.5 * GB, 120 * GB, 12 * GB, 32 * GB, False, "power"),
            gpus_per_switch=0,
            mesh=((0, 1, 2), (0, 2, 2), (1, 2, 2), (3, 4, 2), (3, 5, 2), (4, 5, 2)),
            cpu_links=2,
        ),
        System("mn5-h100", 90, 4, 4, 25 * GB, 370.8 * GB, 48 * GB, 22 * GB, False, "intel"),
        System("kestrel-h100", 90, 4, 2, 25 * GB, 370.8 * GB, 48 * GB, 16 * GB, False, "amd", 0),
        # clouds and servers of the open market: `ringside.topologies.clouds`
        System("aws-p4d", 80, 8, 4, 12.5 * GB, 240 * GB, 12 * GB, 10 * GB, True, "intel", 2),
        System("aws-p4de", 80, 8, 4, 12.5 * GB, 240 * GB, 12 * GB, 10 * GB, True, "intel", 2),
        System("aws-p5", 90, 8, 8, 50 * GB, 370.8 * GB, 48 * GB, 16 * GB, True, "amd"),
        System("gcp-a3mega", 90, 8, 8, 25 * GB, 370.8 * GB, 48 * GB, 22 * GB, True, "intel", 2),
        System("gcp-a4", 100, 8, 8, 50 * GB, 721.8 * GB, 48 * GB, 40 * GB, True, "intel"),
        System("azure-ndv4", 80, 8, 8, 25 * GB, 240 * GB, 24 * GB, 16 * GB, True, "amd", 2, sockets=4),
        System("azure-ndv5", 90, 8, 8, 50 * GB, 370.8 * GB, 48 * GB, 22 * GB, True, "intel"),
        System("hgx-h800", 90, 8, 8, 50 * GB, 164.8 * GB, 48 * GB, 22 * GB, True, "intel"),
        System("hgx-h20", 90, 8, 8, 50 * GB, 370.8 * GB, 48 * GB, 22 * GB, True, "intel"),
        System("rtx4090-pcie", 89, 8, 1, 12.5 * GB, 0, 24 * GB, 16 * GB, False, "amd", 0),
    )
}
"""Machines by name. Each figure is NCCL's (src/graph/topo.h, v2.30.7): NVLink links x speed of
one, PCIe lanes x rate / 80, NIC speed / 8, and the CPU interconnect by processor model."""
