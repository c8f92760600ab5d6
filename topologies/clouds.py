"""Machines of clouds and of the open market by name, with sources; see `ringside.topologies.machines`."""

from ringside.topologies.chassis import all_to_all, behind_nvswitch, cards, gpus_of, on_sockets, slots
from ringside.topologies.graph import Topology
from ringside.topologies.hardware import facts
from ringside.topologies.joining import joined
from ringside.topologies.units import BytesPerSecond, Seconds


def aws_p4d(
    nodes: int = 1,
    nvlink: BytesPerSecond = 300e9,
    nic: BytesPerSecond = 12.5e9,
    pcie: BytesPerSecond = 12e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """AWS p4d.24xlarge: 8 A100 behind NVSwitch, an EFA card of 100 Gb/s for every two GPUs.

    PCIe Gen 3 as the instance shows it, Cascade Lake (AWS, Amazon EC2 P4 instances; topology file of
    github.com/aws/aws-ofi-nccl).
    """
    machine = behind_nvswitch("aws-p4d", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("a100", "intel"))
    slots(machine, pcie, gpus=2, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def aws_p4de(
    nodes: int = 1,
    nvlink: BytesPerSecond = 300e9,
    nic: BytesPerSecond = 12.5e9,
    pcie: BytesPerSecond = 12e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """AWS p4de.24xlarge: a p4d.24xlarge whose 8 A100 have more memory; its links are the same.

    PCIe Gen 3 as the instance shows it, Cascade Lake (AWS, Amazon EC2 P4 instances; topology file of
    github.com/aws/aws-ofi-nccl).
    """
    machine = behind_nvswitch("aws-p4de", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("a100", "intel"))
    slots(machine, pcie, gpus=2, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def aws_p5(
    nodes: int = 1,
    nvlink: BytesPerSecond = 450e9,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """AWS p5.48xlarge: 8 H100 behind NVSwitch, four EFA cards of 100 Gb/s for each GPU, taken for one.

    3,200 Gb/s in all over 32 cards (AWS, Amazon EC2 P5 instances); the plugin that carries NCCL over
    EFA joins the four beside a GPU into one port of 400 Gb/s (github.com/aws/aws-ofi-nccl).
    """
    machine = behind_nvswitch("aws-p5", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("h100", "amd"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def gcp_a3mega(
    nodes: int = 1,
    nvlink: BytesPerSecond = 450e9,
    nic: BytesPerSecond = 25e9,
    pcie: BytesPerSecond = 48e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Google Cloud a3-megagpu-8g: 8 H100 behind NVSwitch, a card of 200 Gb/s for each GPU.

    Eight cards for GPUs beside one for the host, 1,800 Gb/s in all, Sapphire Rapids (Google Cloud,
    accelerator-optimized machine family; GPUDirect-TCPXO).
    """
    machine = behind_nvswitch("gcp-a3mega", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("h100", "intel"))
    slots(machine, pcie, gpus=2, nics=2)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def gcp_a4(
    nodes: int = 1,
    nvlink: BytesPerSecond = 900e9,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Google Cloud a4-highgpu-8g: 8 B200 behind NVSwitch, a ConnectX-7 of 400 Gb/s (RoCE) for each GPU.

    3,200 Gb/s between GPUs, Emerald Rapids (Google Cloud, accelerator-optimized machine family).
    """
    machine = behind_nvswitch("gcp-a4", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("b200", "intel"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def azure_ndv4(
    nodes: int = 1,
    nvlink: BytesPerSecond = 300e9,
    nic: BytesPerSecond = 25e9,
    pcie: BytesPerSecond = 24e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Azure NDv4: 8 A100 behind NVSwitch, an HDR card of 200 Gb/s for each GPU.

    Two GPUs and two cards in each of four NUMA domains of Rome, PCIe Gen 4 (Microsoft Learn, ND96asr_v4
    series; topology file of github.com/Azure/azhpc-images).
    """
    machine = behind_nvswitch("azure-ndv4", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("a100", "amd"))
    slots(machine, pcie, gpus=2, nics=2)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def azure_ndv5(
    nodes: int = 1,
    nvlink: BytesPerSecond = 450e9,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Azure NDv5: 8 H100 behind NVSwitch, an NDR card of 400 Gb/s for each GPU.

    3.2 Tb/s in all, PCIe Gen 5, Sapphire Rapids (Microsoft Learn, ND96isr_H100_v5 series).
    """
    machine = behind_nvswitch("azure-ndv5", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("h100", "intel"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def hgx_h800(
    nodes: int = 1,
    nvlink: BytesPerSecond = 200e9,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """A server with 8 H800 behind NVSwitch and a card of 400 Gb/s for each GPU.

    H800's NVLinks are cut to 400 GB/s both ways together, which is eight links of 25 GB/s each way; the
    rest as in an HGX H100 (DeepSeek-AI, Insights into DeepSeek-V3, ISCA 2025, section 4).
    """
    machine = behind_nvswitch("hgx-h800", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("h800", "intel"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def hgx_h20(
    nodes: int = 1,
    nvlink: BytesPerSecond = 450e9,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """A server with 8 H20 behind NVSwitch and a card of 400 Gb/s for each GPU.

    H20 keeps Hopper's 18 NVLinks, 900 GB/s both ways together, and PCIe Gen 5 (NVIDIA's H20 data sheet,
    2023); cards as in an HGX H100.
    """
    machine = behind_nvswitch("hgx-h20", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("h20", "intel"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def mi300x(
    nodes: int = 1,
    xgmi: BytesPerSecond = 448e9,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    xgmi_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """A server with 8 AMD MI300X, one Infinity Fabric link between any two, a card of 400 Gb/s for each GPU.

    Seven links of 64 GB/s each way a GPU, PCIe Gen 5 (AMD Instinct MI300X data sheet, 2023, and platform
    data sheet). RCCL runs on it, not NCCL: see docs/model_nccl.md. The latency of a link is NVLink's.
    """
    machine = all_to_all("mi300x", 8, xgmi, xgmi_latency, kind="xgmi")
    machine.graph.update(facts("mi300x"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def rtx4090_pcie(
    nodes: int = 1,
    nic: BytesPerSecond = 12.5e9,
    pcie: BytesPerSecond = 24e9,
    socket: BytesPerSecond = 16e9,
    pcie_latency: Seconds = 1e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """A server with 8 RTX 4090 and no NVLink: four GPUs on each of two AMD sockets, one NIC on the first.

    PCIe Gen 4 x16 slots (NVIDIA Ada GPU architecture white paper, 2022) straight on the CPUs, 16 GB/s
    between the sockets by NCCL's reckoning, one 100 Gb/s NIC; the common layout rather than a product.
    """
    machine = gpus_of("rtx4090-pcie", 8)
    machine.graph.update(facts("rtx4090", "amd"))
    on_sockets(machine, 2, socket, pcie, nics=1, latency=pcie_latency / 2)
    outside = max(0.0, network_latency - pcie_latency)
    return joined(machine, nodes, cards(machine, nic), outside, rails=False)
