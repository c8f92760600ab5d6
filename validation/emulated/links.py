"""The parameters of an emulated network's links, from ping-pong alone.

The latency is the one-way time of a message of 4 bytes while all pairs of the measured ranks send: it
includes the time for which ranks that share cores wait for each other. The bandwidth is the slope of large
messages' times; their common offset is left out, because a shaped port lets the first segment of a message
through at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringside.real.collective.emulated import Cluster
from ringside.real.collective.measure import Measurement
from ringside.real.emulate.queues import SEGMENT, SEND_WINDOW
from ringside.real.launch.torchrun import WorldSpec
from ringside.sim.record import Record
from ringside.topologies import Topology
from ringside.topologies.graph import ranks
from ringside.topologies.placement import place
from ringside.validation.emulated.plan import MIB

_SMALL = 4
_LARGE = (MIB // 2, MIB, 2 * MIB)

_QUIET = 0.02
_ATTEMPTS = 4
"""One ping-pong sets the scale of everything: it is repeated until it contains no other load."""


@dataclass(frozen=True, slots=True)
class Link:
    """A host's link as ping-pong measures it: the share of its nominal bandwidth that data get."""

    nominal: float
    efficiency: float


def measure_link(cluster: Cluster) -> Link:
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
    return Link(nominal, float(1 / slope / nominal))


def measure_latency(cluster: Cluster, placement: Sequence[int]) -> float:
    """Return the seconds of the shortest message from rank to rank while all pairs of ranks send."""
    return _ping_pong(cluster, placement, (_SMALL,))[0].time_s


def as_measured(graph: Topology, placement: Sequence[int], link: Link, latency: float) -> Topology:
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


def _ping_pong(cluster: Cluster, placement: Sequence[int], sizes: Sequence[int]) -> list[Record]:
    records: list[Record] = []
    what = Measurement(
        collective="sendrecv",
        algorithm="ping_pong",
        world=WorldSpec(len(placement)),
        sizes=sizes,
        iterations=5 if max(sizes) > _SMALL else 25,
        warmup=1,
    )
    cluster.measure(what, records.append, placement)
    return records
