"""The parameters of an emulated network's links, from ping-pong alone.

The latency is the one-way time of a message of 4 bytes while all pairs of the measured ranks send: it
includes the time for which ranks that share cores wait for each other. The bandwidth is the slope of large
messages' times; their common offset is left out, because a shaped port lets the first segment of a message
through at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringside.real.collective.emulated import EmulatedCluster
from ringside.real.collective.measure import Measurement
from ringside.real.emulate.queues import SEGMENT, SEND_WINDOW
from ringside.real.launch.torchrun import WorldSpec
from ringside.sim.libraries.rules import GLOO, RENDEZVOUS
from ringside.sim.record import Record
from ringside.sim.training.ddp.step import MeasuredNetwork
from ringside.topologies import Topology
from ringside.topologies.file import dumps
from ringside.topologies.graph import ranks
from ringside.topologies.placement import place

_SMALL = 4
_LARGE = (2**19, 2**20, 2**21)

_PING_PONGS = 3
"""Other load makes a link seem slower, never faster: the best run counts."""

_QUIET = 0.02
_ATTEMPTS = 4
"""One ping-pong sets the scale of everything: it is repeated until it contains no other load."""


@dataclass(frozen=True, slots=True)
class MeasuredLink:
    """A host's link as ping-pong measures it: the share of its nominal bandwidth that data get."""

    nominal: float
    efficiency: float


def measure_link(cluster: EmulatedCluster) -> MeasuredLink:
    """Measure ping-pong between the first two hosts, whose links are alike."""
    records = _ping_pong(cluster, (0, 1), _LARGE)
    for _ in range(_ATTEMPTS - 1):
        if max(record.spread for record in records) <= _QUIET:
            break
        again = _ping_pong(cluster, (0, 1), _LARGE)
        records = [min(pair, key=lambda record: record.spread) for pair in zip(records, again, strict=True)]
    slope = np.polyfit([r.nbytes for r in records], [r.time_s for r in records], 1)[0]
    first = ranks(cluster.graph)[0]
    nominal = min(link["bandwidth"] for _, _, link in cluster.graph.out_edges(first, data=True))
    return MeasuredLink(nominal, float(1 / slope / nominal))


def measure_latency(cluster: EmulatedCluster, placement: Sequence[int]) -> float:
    """Return the seconds of the shortest message from rank to rank while all pairs of ranks send."""
    return _ping_pong(cluster, placement, (_SMALL,))[0].time_s


def as_measured(graph: Topology, placement: Sequence[int], link: MeasuredLink, latency: float) -> Topology:
    """Return the network for a prediction: measured bandwidths and latencies, and its transport.

    The latency is the hosts', half at either end: switches are bridges of one kernel and add nothing
    measurable.
    """
    network = place(graph, placement)
    for a, b, data in network.edges(data=True):
        data["bandwidth"] *= link.efficiency
        at_host = "gpu" in (network.nodes[a]["kind"], network.nodes[b]["kind"])
        data["latency"] = latency / 2 if at_host else 0.0
    network.graph.update(segment=SEGMENT, window=SEND_WINDOW)
    return network


def measured_graph(cluster: EmulatedCluster, ranks: int) -> tuple[Topology, float]:
    """Return the network as ping-pong measures it, with rank r on host r, and its latency."""
    hosts = tuple(range(ranks))
    link = max((measure_link(cluster) for _ in range(_PING_PONGS)), key=lambda link: link.efficiency)
    latency = measure_latency(cluster, hosts)
    return as_measured(cluster.graph, hosts, link, latency), latency


def measured_network(cluster: EmulatedCluster, ranks: int) -> MeasuredNetwork:
    """Return the network as ping-pong measures it, for records of Gloo on the first ``ranks`` hosts."""
    graph, latency = measured_graph(cluster, ranks)
    return MeasuredNetwork(topology=dumps(graph), library=GLOO.name, launch_s=RENDEZVOUS * latency)


def _ping_pong(cluster: EmulatedCluster, placement: Sequence[int], sizes: Sequence[int]) -> list[Record]:
    records: list[Record] = []
    measurement = Measurement(
        collective="sendrecv",
        algorithm="ping_pong",
        world=WorldSpec(len(placement)),
        sizes=sizes,
        iterations=5 if max(sizes) > _SMALL else 25,
        warmup=1,
    )
    cluster.measure(measurement, records.append, placement)
    return records
