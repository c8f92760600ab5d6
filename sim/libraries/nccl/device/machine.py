"""A communicator's machines as one topology, with NCCL's routes through them.

Rings and trees have wires of their own (`ringside.sim.libraries.nccl.device.plays`). Sends and receives, PAT,
and reductions in switches are simulated on the machines as NCCL models them: GPUs, NVSwitch, PCIe switches,
CPUs, cards, and one network that is never the bottleneck and reduces if it can.

A message to another node leaves by the card beside the receiver, if a good path leads to it: over NVLink to
the GPU beside that card (PXN) or by a switch; else by one of the sender's own cards. If a GPU has several
cards, each channel has one (src/graph/paths.cc and src/transport/net.cc, v2.30.7).

Latencies are the tuner's hardware latencies of a hop: NVLink's and PCIe's where a message leaves a GPU, the
network's in equal parts before and behind the network, less the PCIe before it.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device.connect import paths_of
from ringside.sim.libraries.nccl.device.p2p import CONNECTION
from ringside.sim.libraries.nccl.device.schedules import schedule
from ringside.sim.libraries.nccl.figures import hop_us
from ringside.sim.libraries.nccl.graph.graph import LOCAL, Link, Node, PathClass
from ringside.sim.schedule import Ints
from ringside.topologies import Routes, Topology
from ringside.topologies.graph import Hop

NETWORK = "network"

_KINDS = {
    "gpu": "gpu", "dev": "pcie", "pci": "pcie", "nvs": "nvswitch", "cpu": "cpu", "nic": "nic", "net": "nic",
}  # fmt: skip
_LINKS = {
    PathClass.LOC: "memory", PathClass.NVL: "nvlink", PathClass.C2C: "c2c", PathClass.PIX: "pcie",
    PathClass.SYS: "upi", PathClass.NET: "ib",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hops:
    """Seconds that a message's head takes over NVLink, over PCIe and over the network."""

    nvlink: float
    pcie: float
    network: float

    @classmethod
    def of(cls, comm: Communicator, algorithm: str, kind: str) -> "Hops":
        """Return the latencies of an algorithm with Simple.

        With one rank per node the network's is the trees', as in the tuner. NVLS has one figure for a
        whole node, where an all-reduce goes up to the switch twice.
        """
        exposed = "tree" if comm.gpus == 1 else algorithm
        link, slot = (hop_us(link, algorithm, "simple", comm) for link in ("nvlink", "pci"))
        link /= 2 if algorithm.startswith("nvls") and kind == "all_reduce" else 1
        return cls(link * 1e-6, slot * 1e-6, hop_us("net", exposed, "simple", comm) * 1e-6)


class MachineRoutes(Routes):
    """All machines of a communicator as one topology, ``graph``, and the routes through it."""

    def __init__(self, comm: Communicator, hops: Hops, *, channels: float = 1, nvlink: float = 1.0) -> None:
        """Make one channel's part: ``channels`` share every link evenly; ``nvlink`` scales NVLinks."""
        self._comm, self._paths = comm, paths_of(comm)
        self._names = {
            id(node): f"{kind}{number}"
            for kind, nodes in self._paths.nodes.of.items()
            for number, node in enumerate(nodes)
        }
        gpus = self._paths.nodes.of["gpu"]
        self._gpu = sorted(range(comm.gpus), key=lambda gpu: gpus[gpu].rank)
        """The place of each local rank's GPU among the machine's."""
        self._ports = [self._paths.ports[gpu] for gpu in range(comm.gpus)]
        self._channel = 0
        self._of_channel: dict[int, MachineRoutes] = {}
        self._copied: set[tuple[int, int, int]] = set()
        self.graph = self._drawn(hops, channels, nvlink)
        super().__init__(self.graph)

    @property
    def most_ports(self) -> int:
        """The largest number of a GPU's own cards, 1 if it has none."""
        return max(1, *map(len, self._ports))

    @property
    def many_ports(self) -> bool:
        """Whether some GPU has several cards of its own."""
        return self.most_ports > 1

    def on(self, channel: int) -> "MachineRoutes":
        """Return the same routes over the cards of a channel."""
        if channel not in self._of_channel:
            self._of_channel[channel] = copy(self)
            self._of_channel[channel]._channel = channel
        return self._of_channel[channel]

    def copy_in_blocks(self, connections: Iterable[tuple[int, int, int]]) -> None:
        """Copy each connection's sends over NVLink or a card in a thread block, at its own pace.

        That is no faster than one NVLink, and between nodes than NCCL counts a connection.
        """
        for src, dst, channel in connections:
            gpu, block = self._block(src, dst, channel)
            away = src // self._comm.gpus != dst // self._comm.gpus
            speed = CONNECTION if away else self._comm.system.nvlink_rate
            if away or {self.graph.edges[hop]["kind"] for hop in self.route(src, dst)} == {"nvlink"}:
                self._copied.add((src, dst, channel))
                self.graph.add_node(block, kind="cpu")  # the nearest available kind
                self.graph.add_edge(gpu, block, kind="memory", bandwidth=speed, latency=0.0)
                self.graph.add_edge(block, gpu, kind="memory", bandwidth=LOCAL, latency=0.0)

    def _block(self, src: int, dst: int, channel: int) -> tuple[str, str]:
        """Return the GPU's name and that of the thread block for its sends to a rank on a channel."""
        node, local = divmod(src, self._comm.gpus)
        gpu = self._name(node, self._paths.nodes.of["gpu"][self._gpu[local]])
        return gpu, f"{gpu}/to{dst}/channel{channel}"

    def route(self, src: int, dst: int) -> tuple[Hop, ...]:
        """Return the route from rank to rank."""
        (here, a), (there, b) = self._place(src), self._place(dst)
        if here == there:
            way = self._along(here, self._paths.gpus[a][b].links, a)
        else:
            out, into = self.cards(src, dst)
            way = (*self._leaving(here, a, out), *self._landing(there, b, into))
        if (src, dst, self._channel) not in self._copied:
            return way
        gpu, block = self._block(src, dst, self._channel)
        return ((gpu, block), (block, gpu), *way)

    def cards(self, src: int, dst: int) -> tuple[int, int]:
        """Return the cards by which a message to another node leaves and arrives, as numbers in a node."""
        (_, a), (_, b) = self._place(src), self._place(dst)
        into = self._port(b)
        return (into if self._paths.out[a][into].kind <= PathClass.PXN else self._port(a)), into

    def _place(self, rank: int) -> tuple[int, int]:
        """Return a rank's node, and its GPU among the node's."""
        node, local = divmod(rank, self._comm.gpus)
        return node, self._gpu[local]

    def to_switch(self, rank: int, joined: tuple[int, ...]) -> tuple[Hop, ...]:
        """Return the route up to the node's NVSwitch, or over the rank's card to the network."""
        node, gpu = divmod(rank, self._comm.gpus)
        gpu = self._gpu[gpu]
        if self._inside(joined):
            return self._along(node, self._paths.up[gpu].links, gpu)
        return self._leaving(node, gpu, self._port(gpu))

    def from_switch(self, joined: tuple[int, ...], rank: int) -> tuple[Hop, ...]:
        """Return the route down from the node's NVSwitch, or from the network by the rank's card."""
        node, gpu = divmod(rank, self._comm.gpus)
        gpu = self._gpu[gpu]
        if self._inside(joined):
            return self._walked(node, self._paths.nodes.nvswitch(), self._paths.down[gpu].links)
        return self._landing(node, gpu, self._port(gpu))

    def _inside(self, joined: tuple[int, ...]) -> bool:
        return len({rank // self._comm.gpus for rank in joined}) == 1 and len(joined) > 1

    def _port(self, gpu: int) -> int:
        if not self._ports[gpu]:
            raise ValueError(
                f"{self._comm.system.name} has no card by which a message leaves; write 1 node, or nic=RATE"
            )
        return self._ports[gpu][self._channel % len(self._ports[gpu])]

    def _leaving(self, node: int, gpu: int, port: int) -> tuple[Hop, ...]:
        net = self._paths.nodes.of["net"][port]
        way = self._along(node, self._paths.out[gpu][port].links, gpu)
        return (*way, (self._name(node, net), NETWORK))

    def _landing(self, node: int, gpu: int, port: int) -> tuple[Hop, ...]:
        net = self._paths.nodes.of["net"][port]
        way = self._walked(node, net, self._paths.back[port][gpu].links)
        return ((NETWORK, self._name(node, net)), *way)

    def _along(self, node: int, links: Iterable[Link], gpu: int) -> tuple[Hop, ...]:
        return self._walked(node, self._paths.nodes.of["gpu"][gpu], links)

    def _walked(self, node: int, start: Node, links: Iterable[Link]) -> tuple[Hop, ...]:
        names = [self._name(node, start), *(self._name(node, link.to) for link in links)]
        return tuple(pairwise(names))

    def _name(self, node: int, device: Node) -> str:
        return f"node{node}/{self._names[id(device)]}"

    def _drawn(self, hops: Hops, channels: float, nvlink: float) -> Topology:
        comm, of = self._comm, self._paths.nodes.of
        graph: Topology = nx.DiGraph(name=f"{comm.nodes} x {comm.system.name}", nodes=comm.nodes)
        for node in range(comm.nodes):
            for kind, devices in of.items():
                for number, device in enumerate(devices):
                    rank = {"rank": node * comm.gpus + self._gpu.index(number)} if kind == "gpu" else {}
                    graph.add_node(self._name(node, device), kind=_KINDS[kind], **rank)
            for device in (device for devices in of.values() for device in devices):
                for link in device.links:
                    a, b = self._name(node, device), self._name(node, link.to)
                    if not graph.has_edge(a, b):  # of two links between two devices the wider comes first
                        graph.add_edge(a, b, **_figures(device, link, hops, nvlink, channels))
        if comm.nodes > 1:
            graph.add_node(NETWORK, kind="switch")
            share = max(hops.network - hops.pcie, 0.0) / 2
            for name, net in (
                (self._name(node, net), net) for node in range(comm.nodes) for net in of["net"]
            ):
                figures = {"kind": "ib", "bandwidth": net.bandwidth / channels, "latency": share}
                graph.add_edge(name, NETWORK, **figures)
                graph.add_edge(NETWORK, name, **figures)
        return graph


def _figures(device: Node, link: Link, hops: Hops, nvlink: float, channels: float) -> dict[str, Any]:
    """Return the edge attributes of a device's link."""
    over_nvlink = link.kind is PathClass.NVL
    part = (nvlink if over_nvlink else 1.0) / channels
    hop = hops.nvlink if over_nvlink else hops.pcie
    latency = hop if device.kind == "gpu" else 0.0
    return {"kind": _LINKS[link.kind], "bandwidth": link.bandwidth * part, "latency": latency}


def of_nvlink(comm: Communicator, algorithm: str) -> float:
    """Return the usable share of NVLink bandwidth: with switch reductions that of the release's tuner."""
    known = comm.constants.nvls_efficiency if algorithm.startswith("nvls") else ()
    return (known[comm.generation] if known else 0.0) or 1.0


def nvls_port(comm: Communicator) -> float:
    """Return the bytes/s of a GPU's port to its NVSwitch for switch reductions, one direction."""
    return comm.system.nvlink * of_nvlink(comm, "nvls")


Floats = NDArray[np.float64]

MAX_TRANSFERS = 2_000_000
"""Maximum number of PAT's messages that are counted, some seconds' work."""

MAX_WAYS = 100_000_000
"""Maximum number of routes from card to card that are followed, some seconds' work."""

_BLOCK = 2**20
"""Routes that are followed at once, to limit memory."""


@dataclass(frozen=True, eq=False, slots=True)
class ExchangedBytes:
    """Bytes between local ranks, a table per node; one table if all nodes are alike.

    ``inside`` is from a rank of a node to another of the same, ``leaving`` from a rank of the node to one on
    another, ``arriving`` the reverse. ``sent`` has all messages between nodes, by source and destination;
    it is ``None`` if every rank sends ``each`` to every other.
    """

    inside: Floats
    leaving: Floats
    arriving: Floats
    sent: tuple[Ints, Ints, Floats] | None
    each: float = 0.0


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards by which a message leaves its node and arrives, by the local ranks of its ends.

    There is one such table per channel with other cards; all carry the same bytes.
    """

    out: tuple[Ints, ...]
    into: tuple[Ints, ...]


def exchange(comm: Communicator, collective: Collective, algorithm: str) -> ExchangedBytes | None:
    """Return the bytes of ``p2p`` or ``pat``; ``None`` if there are too many messages."""
    if algorithm == "pat":
        plan = schedule(comm, collective, algorithm, "simple")
        if plan.longer_than(MAX_TRANSFERS):
            return None
        steps = [(one.src, one.dst, plan.nbytes(one)) for one in plan.steps()]
        src, dst, nbytes = (np.concatenate(column) for column in zip(*steps, strict=True))
        return _of_messages(comm, src, dst, nbytes.astype(np.float64))
    rank, part = np.arange(comm.ranks), collective.nbytes / comm.ranks
    root = np.full_like(rank, collective.root)
    match collective.kind:
        case "all_to_all" if collective.splits is not None:
            table = np.array(collective.splits, dtype=np.float64) * collective.itemsize
            src, dst = np.divmod(np.arange(comm.ranks**2), comm.ranks)
            return _of_messages(comm, src, dst, table.ravel())
        case "all_to_all":
            alike = np.full((1, comm.gpus, comm.gpus), part)
            between = alike * (comm.nodes - 1)
            return ExchangedBytes(alike * (1 - np.eye(comm.gpus)), between, between, None, part)
        case "gather":
            return _of_messages(comm, rank, root, np.full(comm.ranks, part))
        case "scatter":
            return _of_messages(comm, root, rank, np.full(comm.ranks, part))
        case _:
            whole = np.full(comm.ranks, float(collective.nbytes))
            return _of_messages(comm, rank, (rank + 1) % comm.ranks, whole)


def _of_messages(comm: Communicator, src: Ints, dst: Ints, nbytes: Floats) -> ExchangedBytes:
    (here, a), (there, b) = np.divmod(src, comm.gpus), np.divmod(dst, comm.gpus)

    def table(node: Ints, which: NDArray[np.bool_]) -> Floats:
        bytes_ = np.zeros((comm.nodes, comm.gpus, comm.gpus))
        np.add.at(bytes_, (node[which], a[which], b[which]), nbytes[which])
        return bytes_

    away = here != there
    sent = src[away], dst[away], nbytes[away]
    return ExchangedBytes(table(here, ~away & (src != dst)), table(here, away), table(there, away), sent)


@lru_cache(maxsize=256)
def cards_of(comm: Communicator) -> Cards:
    """Return the cards of every pair of local ranks of two nodes."""
    pair = MachineRoutes(replace(comm, nodes=2, network=None), Hops.of(comm, "ring", "all_reduce"))
    gpus = range(comm.gpus)
    tables = [
        np.array([[pair.on(channel).cards(a, comm.gpus + b) for b in gpus] for a in gpus])
        for channel in range(pair.most_ports)
    ]
    return Cards(tuple(table[..., 0] for table in tables), tuple(table[..., 1] for table in tables))


def between_cards(
    comm: Communicator, moved: ExchangedBytes, cards: int
) -> Iterator[tuple[Ints, Ints, Floats]] | None:
    """Return all bytes from port to port, ``cards`` on each node, in parts; ``None`` for too many routes."""
    table = cards_of(comm)
    if moved.sent is None:
        pairs = np.concatenate(
            [
                out.ravel() % cards * cards + into.ravel() % cards
                for out, into in zip(*_both(table), strict=True)
            ]
        )
        used, times = np.unique(pairs, return_counts=True)
        if comm.nodes**2 * len(used) > MAX_WAYS:
            return None
        return _everywhere(_numbers(comm), cards, used, times * moved.each / len(table.out))
    return _sent(comm, moved.sent, cards, table)


def _both(table: Cards) -> tuple[tuple[Ints, ...], tuple[Ints, ...]]:
    return table.out, table.into


def _everywhere(
    machines: Ints, cards: int, pairs: Ints, nbytes: Floats
) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yield bytes from every node to every other by the same pairs of cards."""
    out, into = np.divmod(pairs, cards)
    at_once = max(_BLOCK // (len(machines) * len(pairs)), 1)
    for first in range(0, len(machines), at_once):
        here, there = np.meshgrid(machines[first : first + at_once], machines)
        here, there = here[here != there], there[here != there]
        src, dst = here[:, None] * cards + out, there[:, None] * cards + into
        yield src.ravel(), dst.ravel(), np.tile(nbytes, len(here))


def _sent(
    comm: Communicator, sent: tuple[Ints, Ints, Floats], cards: int, table: Cards
) -> Iterator[tuple[Ints, Ints, Floats]]:
    src, dst, nbytes = sent
    (here, a), (there, b) = np.divmod(src, comm.gpus), np.divmod(dst, comm.gpus)
    here, there = _numbers(comm)[here] * cards, _numbers(comm)[there] * cards
    for out, into in zip(*_both(table), strict=True):
        yield here + out[a, b] % cards, there + into[a, b] % cards, nbytes / len(table.out)


def _numbers(comm: Communicator) -> Ints:
    """Return the numbers of the nodes' machines on the fabric."""
    return np.array(comm.machines or range(comm.nodes), dtype=np.int64)
