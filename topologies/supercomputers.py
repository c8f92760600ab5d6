"""Nodes of supercomputers by name, with the source of every figure; see `ringside.topologies.machines`."""

from ringside.topologies.chassis import (
    all_to_all,
    behind_nvswitch,
    cards,
    gpus_of,
    on_sockets,
    slots,
    sockets,
)
from ringside.topologies.graph import Topology, add_cable
from ringside.topologies.hardware import facts
from ringside.topologies.joining import joined
from ringside.topologies.units import BytesPerSecond, Seconds


def abci_v100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 150e9,
    nic: BytesPerSecond = 12.5e9,
    pcie: BytesPerSecond = 12e9,
    socket: BytesPerSecond = 10e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """ABCI's compute node (V): 4 V100 SXM2, two NVLinks between any two, an EDR NIC for every two GPUs.

    Six NVLink 2 links of 25 GB/s each way a GPU, two 100 Gb/s ports, PCIe Gen 3 switches, Skylake
    (AIST, ABCI user guide, system overview; 10 GB/s between sockets is NCCL's figure).
    """
    machine = all_to_all("abci-v100", 4, nvlink, nvlink_latency)
    machine.graph.update(facts("v100", "intel"))
    slots(machine, pcie, gpus=2, nics=1)
    sockets(machine, 2, socket, pcie)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def abci_a100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 300e9,
    nic: BytesPerSecond = 25e9,
    pcie: BytesPerSecond = 24e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """ABCI's compute node (A): 8 A100 behind NVSwitch, an HDR NIC for every two GPUs.

    12 NVLink 3 links of 25 GB/s each way, four 200 Gb/s ports, PCIe Gen 4, Ice Lake (AIST, ABCI user
    guide, system overview; that a NIC shares a switch with two GPUs is taken from the port count).
    """
    machine = behind_nvswitch("abci-a100", 8, nvlink, nvlink_latency)
    machine.graph.update(facts("a100", "intel"))
    slots(machine, pcie, gpus=2, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def alps_gh200(
    nodes: int = 1,
    nvlink: BytesPerSecond = 450e9,
    nic: BytesPerSecond = 25e9,
    pcie: BytesPerSecond = 24e9,
    c2c: BytesPerSecond = 450e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Alps' GH200 node: 4 Grace Hopper, six NVLinks between any two, a Slingshot NIC on each Grace.

    18 NVLink 4 links of 25 GB/s each way, NVLink-C2C of 450 GB/s each way, 200 Gb/s Slingshot 11 on PCIe
    Gen 4 (CSCS documentation, Alps hardware; NVIDIA GH200 architecture white paper, 2023).
    """
    machine = all_to_all("alps-gh200", 4, nvlink, nvlink_latency)
    machine.graph.update(facts("h100", "arm"))
    for gpu in range(4):
        machine.add_node(f"cpu{gpu}", kind="cpu", tier=1)
        machine.add_node(f"nic{gpu}", kind="nic", tier=2)
        add_cable(machine, f"gpu{gpu}", f"cpu{gpu}", kind="c2c", bandwidth=c2c, latency=0)
        add_cable(machine, f"cpu{gpu}", f"nic{gpu}", kind="pcie", bandwidth=pcie, latency=0)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def polaris_a100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 300e9,
    nic: BytesPerSecond = 25e9,
    pcie: BytesPerSecond = 24e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Polaris: 4 A100, four NVLinks between any two, and two Slingshot NICs on one Milan.

    12 NVLink 3 links of 25 GB/s each way, 200 Gb/s Slingshot 11, PCIe Gen 4 (ALCF user guides, Polaris
    machine overview, whose device affinity table has the NICs beside GPU 3 and GPU 1).
    """
    machine = all_to_all("polaris-a100", 4, nvlink, nvlink_latency)
    machine.graph.update(facts("a100", "amd"))
    on_sockets(machine, 1, 0, pcie, nics=2)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def perlmutter_a100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 300e9,
    nic: BytesPerSecond = 25e9,
    pcie: BytesPerSecond = 24e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Perlmutter's GPU node: 4 A100, four NVLinks between any two, and four Slingshot NICs on one Milan.

    12 NVLink 3 links of 25 GB/s each way, 200 Gb/s Slingshot 11, PCIe Gen 4 (NERSC documentation,
    Perlmutter architecture).
    """
    machine = all_to_all("perlmutter-a100", 4, nvlink, nvlink_latency)
    machine.graph.update(facts("a100", "amd"))
    on_sockets(machine, 1, 0, pcie, nics=4)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def summit_v100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 150e9,
    nic: BytesPerSecond = 12.5e9,
    pcie: BytesPerSecond = 12e9,
    socket: BytesPerSecond = 32e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Summit (IBM AC922): 6 V100, three on a POWER9, two NVLinks to each neighbour and to the CPU.

    Six NVLink 2 links of 25 GB/s each way, two EDR ports of 100 Gb/s, each on PCIe Gen 4 x8 of its
    socket (OLCF, Summit user guide; 32 GB/s between the sockets is NCCL's figure).
    """
    machine = gpus_of("summit-v100", 6)
    machine.graph.update(facts("v100", "power"))
    for a, b in ((0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)):
        add_cable(machine, f"gpu{a}", f"gpu{b}", kind="nvlink", bandwidth=nvlink / 3, latency=nvlink_latency)
    for cpu in range(2):
        machine.add_node(f"cpu{cpu}", kind="cpu", tier=1)
        machine.add_node(f"nic{cpu}", kind="nic", tier=2)
        add_cable(machine, f"cpu{cpu}", f"nic{cpu}", kind="pcie", bandwidth=pcie, latency=0)
    for gpu in range(6):
        half = {"bandwidth": nvlink / 3, "latency": nvlink_latency / 2}
        add_cable(machine, f"gpu{gpu}", f"cpu{gpu // 3}", kind="nvlink", **half)
    add_cable(machine, "cpu0", "cpu1", kind="upi", bandwidth=socket, latency=0)
    return joined(machine, nodes, cards(machine, nic), max(0.0, network_latency - nvlink_latency))


def mn5_h100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 450e9,
    nic: BytesPerSecond = 25e9,
    pcie: BytesPerSecond = 48e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """MareNostrum 5's accelerated node: 4 H100, six NVLinks between any two, an NDR200 NIC for each.

    18 NVLink 4 links of 25 GB/s each way, four 200 Gb/s ConnectX-7 (800 Gb/s a node), Sapphire Rapids
    (BSC, MareNostrum 5 user guide; that each GPU shares a switch with its NIC is taken from the count).
    """
    machine = all_to_all("mn5-h100", 4, nvlink, nvlink_latency)
    machine.graph.update(facts("h100", "intel"))
    slots(machine, pcie, gpus=1, nics=1)
    return joined(machine, nodes, cards(machine, nic), network_latency)


def kestrel_h100(
    nodes: int = 1,
    nvlink: BytesPerSecond = 450e9,
    nic: BytesPerSecond = 25e9,
    pcie: BytesPerSecond = 48e9,
    socket: BytesPerSecond = 16e9,
    nvlink_latency: Seconds = 0.6e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Kestrel's GPU node: 4 H100, six NVLinks between any two, two on each Genoa with one Slingshot NIC.

    18 NVLink 4 links of 25 GB/s each way, two 200 Gb/s Slingshot 11 (NREL, Kestrel system configuration;
    16 GB/s between the sockets is NCCL's figure, the place of the NICs is taken from the counts).
    """
    machine = all_to_all("kestrel-h100", 4, nvlink, nvlink_latency)
    machine.graph.update(facts("h100", "amd"))
    on_sockets(machine, 2, socket, pcie, nics=2)
    return joined(machine, nodes, cards(machine, nic), network_latency)
