"""Machines by name, one or many of them, with the source of every figure.

Bandwidths are bytes/s of one direction; a setting is what one GPU, slot or card has. NVLink figures
are the data sheets'. PCIe figures are what NCCL reckons a x16 slot to carry (lanes x rate / 80: 12
GB/s for Gen 3, 24 GB/s for Gen 4, 48 GB/s for Gen 5; src/graph/topo.h, v2.30.7), a quarter under
the signalling rate; so is the link between sockets. Latencies are the hops that NCCL's tuner
assumes for its quickest protocol, LL: 0.6 us over NVLink, 1 us over PCIe and 2.7 us over the network
(src/graph/tuning.cc, v2.30.7); the network's is what a message from machine to machine pays in all.
They are presets to start from; calibration replaces them.

CPUs are drawn where collectives cross them: where NVLink does not join all GPUs, or NICs hang on them.
"""

from ringside.topologies.chassis import behind_nvswitch, cards, gpus_of, slots, sockets
from ringside.topologies.graph import Topology, add_cable
from ringside.topologies.hardware import facts
from ringside.topologies.joining import joined
from ringside.topologies.units import BytesPerSecond, Seconds

CUBE_MESH = {
    **dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)], 1),
    **dict.fromkeys([(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)], 2),
}
"""NVLinks between the GPUs of a DGX-1 with V100: six a GPU, at most two a pair, none between the others."""


def dgx1_v100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 150e9,
    nic: BytesPerSecond = 12.5e9,
    pcie: BytesPerSecond = 12e9,
    socket: BytesPerSecond = 6e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """NVIDIA DGX-1 with V100: 8 GPUs in a hybrid cube mesh of NVLinks, a NIC for every two GPUs.

    Six NVLink 2 links of 25 GB/s each way, none of them to a switch: a pair without a link goes
    through a GPU that both have one to. Four switches of PCIe Gen 3, each with two GPUs and one 100
    Gb/s ConnectX-4, two on each Broadwell socket; 6 GB/s is NCCL's figure for QPI between those
    (NVIDIA DGX-1 With Tesla V100 System Architecture, WP-08437-002, 2017; which pairs have one link
    and which two: ``nvidia-smi topo -m`` on such machines).
    """
    machine = gpus_of("dgx1-v100", 8)
    machine.graph.update(facts("v100", "intel"))
    for (a, b), links in CUBE_MESH.items():
        bandwidth = nvlink * links / 6
        add_cable(machine, f"gpu{a}", f"gpu{b}", kind="nvlink", bandwidth=bandwidth, latency=nvlink_latency)
    slots(machine, pcie, gpus=2, nics=1)
    sockets(machine, 2, socket, pcie)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def dgx2_v100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 150e9,
    nic: BytesPerSecond = 12.5e9,
    pcie: BytesPerSecond = 12e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """NVIDIA DGX-2: 16 V100 behind NVSwitch, 8 EDR NICs, two GPUs and a NIC on a PCIe switch.

    Six NVLink 2 links of 25 GB/s each way, eight 100 Gb/s ConnectX-5, PCIe Gen 3 (NVIDIA DGX-2
    data sheet, 2018; DGX-2 system user guide for the PCIe layout).
    """
    machine = behind_nvswitch("dgx2-v100", 16, nvlink, nvlink_latency)
    machine.graph.update(facts("v100", "intel"))
    slots(machine, pcie, gpus=2, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def dgx_a100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 300e9,
    nic: BytesPerSecond = 25e9,
    pcie: BytesPerSecond = 24e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """NVIDIA DGX A100: 8 GPUs behind NVSwitch, 8 HDR NICs for compute, two and two on a PCIe switch.

    12 NVLink 3 links of 25 GB/s each way, eight 200 Gb/s ConnectX-6, PCIe Gen 4 (NVIDIA DGX A100
    data sheet, 2020; DGX A100 system user guide for the PCIe layout).
    """
    machine = behind_nvswitch("dgx-a100", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("a100", "amd"))
    slots(machine, pcie, gpus=2, nics=2)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def dgx_h100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 450e9,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """NVIDIA DGX H100: 8 GPUs behind NVSwitch, 8 NDR NICs for compute, one and one on a PCIe switch.

    18 NVLink 4 links of 25 GB/s each way, eight 400 Gb/s ConnectX-7, PCIe Gen 5 (NVIDIA DGX H100
    data sheet, 2022; DGX H100/H200 user guide for the PCIe layout).
    """
    machine = behind_nvswitch("dgx-h100", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("h100", "intel"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def dgx_h200(
    nodes: int = 1,
    nvlink: BytesPerSecond = 450e9,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """NVIDIA DGX H200: a DGX H100 whose 8 GPUs have more memory; its links are the same.

    18 NVLink 4 links of 25 GB/s each way, eight 400 Gb/s ConnectX-7, PCIe Gen 5 (NVIDIA DGX H200
    data sheet, 2023; DGX H100/H200 user guide for the PCIe layout).
    """
    machine = behind_nvswitch("dgx-h200", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("h200", "intel"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def dgx_b200(
    nodes: int = 1,
    nvlink: BytesPerSecond = 900e9,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """NVIDIA DGX B200: 8 GPUs behind NVSwitch, 8 NDR NICs for compute, one and one on a PCIe switch.

    18 NVLink 5 links of 50 GB/s each way, eight 400 Gb/s ConnectX-7, PCIe Gen 5 (NVIDIA DGX B200
    data sheet, 2024; DGX B200 user guide for the PCIe layout).
    """
    machine = behind_nvswitch("dgx-b200", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("b200", "intel"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def gb200_nvl72(
    nodes: int = 1,
    nvlink: BytesPerSecond = 900e9,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    c2c: BytesPerSecond = 225e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """NVIDIA GB200 NVL72: a rack of 72 GPUs behind NVSwitch, two to a Grace CPU, a NIC for each GPU.

    A node is a rack, one NVLink domain. 18 NVLink 5 links of 50 GB/s each way; NVLink-C2C of 900
    GB/s both ways together between a Grace and its two GPUs, on whose side no PCIe lies; one 400 Gb/s
    ConnectX-7 a GPU on the Grace's PCIe Gen 5 (NVIDIA GB200 NVL72 data sheet, 2024; NVIDIA DGX
    SuperPOD with GB200 reference architecture for the tray's layout).
    """
    machine = behind_nvswitch("gb200-nvl72", 72, nvlink, nvlink_latency)
    machine.graph.update(facts("b200", "arm"))
    for gpu in range(72):
        cpu, card = f"cpu{gpu // 2}", f"nic{gpu}"
        machine.add_node(cpu, kind="cpu", tier=1)
        machine.add_node(card, kind="nic", tier=2)
        add_cable(machine, f"gpu{gpu}", cpu, kind="c2c", bandwidth=c2c, latency=0)
        add_cable(machine, cpu, card, kind="pcie", bandwidth=pcie, latency=0)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def a100_pcie4(
    nodes: int = 1,
    nic: BytesPerSecond = 12.5e9,
    pcie: BytesPerSecond = 24e9,
    socket: BytesPerSecond = 10e9,
    pcie_latency: Seconds = 1e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """A server with 4 A100 PCIe and no NVLink: two GPUs and one NIC on each of two sockets, one fabric.

    PCIe Gen 4 x16 slots (NVIDIA A100 PCIe product brief, PB-10137-001, 2020) on a switch a socket, 10
    GB/s between Ice Lake sockets by NCCL's reckoning, 100 Gb/s NICs; the common layout of two-socket
    servers rather than one product. All NICs of all machines share one switch.
    """
    machine = gpus_of("a100-pcie4", 4)
    machine.graph.update(facts("a100", "intel"))
    slots(machine, pcie, gpus=2, nics=1, latency=pcie_latency / 2)
    sockets(machine, 2, socket, pcie)
    outside = max(0.0, network_latency - pcie_latency)
    return joined(machine, nodes, cards(machine, nic), outside, rails=False)


def h100_1gpu(
    nodes: int = 2,
    nic: BytesPerSecond = 50e9,
    pcie: BytesPerSecond = 48e9,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Servers with one H100 and one NIC each, both on one PCIe switch, all NICs on one network switch.

    PCIe Gen 5 x16 (NVIDIA H100 PCIe product brief, PB-11133-001, 2022) and a 400 Gb/s ConnectX-7.
    """
    machine = gpus_of("h100-1gpu", 1)
    machine.graph.update(facts("h100", "intel"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)
