"""The parameters of an emulated network's links, from ping-pong alone.

The latency is the one-way time of a message of 4 bytes while all pairs of the measured ranks send: it
includes the time for which ranks that share cores wait for each other. The bandwidth is the slope of large
messages' times; their common offset is left out, because a shaped port lets the first segment of a message
through at once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from ringside.real.backends import ON_SOCKETS
from ringside.real.collective.measure import Measurement, job_of, record_of
from ringside.real.emulate import EmulatedNetwork, Host, emulate
from ringside.real.emulate.queues import BURST, MTU, SEGMENT, SEND_WINDOW
from ringside.real.launch.follow import RankJob, Row
from ringside.real.launch.forks import Forks
from ringside.real.launch.torchrun import TORCHRUN, Agent, WorldSpec, run_agents
from ringside.sim.libraries.rules import GLOO, RENDEZVOUS
from ringside.sim.record import Record
from ringside.sim.training.ddp.step import MeasuredNetwork
from ringside.topologies.file import dumps
from ringside.topologies.graph import Topology, ranks
from ringside.topologies.placement import check_placement, place
from ringside.topologies.units import format_rate

_PORT = 29400


@dataclass(frozen=True, slots=True)
class EmulatedCluster:
    """An emulated network that is up; ``forks`` starts its ranks, or torchrun where ``forks`` is None."""

    graph: Topology
    network: EmulatedNetwork
    forks: Forks | None

    def measure(
        self,
        measurement: Measurement,
        on_record: Callable[[Record], None],
        placement: Sequence[int] | None = None,
    ) -> None:
        """Measure with rank r on host ``placement[r]``; call ``on_record`` with each size's record.

        Several ranks may share a host. Without a placement, ranks fill the hosts in order and evenly. The
        world of ``measurement`` gives the number of ranks, the placement their hosts. Raise
        `ringside.real.launch.follow.MeasureError` where a rank dies, hangs or disagrees, after all have been
        killed.
        """
        if placement is None:
            placement = spread(measurement.world.ranks, len(self.network.hosts))
        if len(placement) != measurement.world.ranks or measurement.backend not in ON_SOCKETS:
            raise ValueError(
                f"{measurement.world.ranks} ranks of {measurement.backend} on hosts {list(placement)}; "
                f"write one host for each rank, and the backend gloo"
            )
        settings = self.settings(placement)

        def on_row(row: Row) -> None:
            record = record_of(measurement, {**row, "fingerprint": {**row["fingerprint"], **settings}})
            on_record(
                replace(
                    record,
                    cluster=f"emulated {self.graph.graph.get('name', 'topology')}",
                    num_nodes=len(set(placement)),
                )
            )

        self.run(job_of(measurement), placement, on_row)

    def run(self, job: RankJob, placement: Sequence[int], on_row: Callable[[Row], None]) -> None:
        """Carry out a job with rank r on host ``placement[r]``; call ``on_row`` with each row."""
        check_placement(self.graph, placement)
        hosts = [self.network.hosts[host] for host in placement]
        if self.forks:
            self.forks.run(job, hosts, on_row)
        else:
            run_agents(job, _agents(self.network, hosts), on_row)

    def settings(self, placement: Sequence[int]) -> dict[str, str]:
        """Return the network's settings for a record: rates, queues and the host of each rank."""
        rates = [data["bandwidth"] for _, _, data in self.graph.edges(data=True)]
        return {
            "emulated_hosts": str(len(ranks(self.graph))),
            "emulated_slowest_link": format_rate(min(rates, default=0.0)),
            "emulated_fastest_link": format_rate(max(rates, default=0.0)),
            "emulated_topology_sha256": sha256(dumps(self.graph).encode()).hexdigest()[:16],
            "emulated_queue": f"htb, burst {BURST} B, acknowledgements first, MTU {MTU}",
            "emulated_tcp": f"reno, send window {SEND_WINDOW} B, no slow start after idle",
            "started_by": "fork" if self.forks else "torchrun",
            "placement": " ".join(map(str, placement)),
        }


@contextmanager
def cluster(
    graph: Topology, forks: Forks | None = None, *, torchrun: bool = False
) -> Iterator[EmulatedCluster]:
    """Yield the topology as an emulated network on which collectives can be measured.

    Several networks may share ``forks``, one after another. With ``torchrun`` every host runs its own agent,
    as the nodes of a cluster do. Raise as `ringside.real.emulate.emulate` does.
    """
    with emulate(graph) as network:
        if torchrun or forks:
            yield EmulatedCluster(graph, network, forks)
            return
        with Forks() as own:
            yield EmulatedCluster(graph, network, own)


def measure_emulated(
    graph: Topology,
    measurement: Measurement,
    on_record: Callable[[Record], None],
    *,
    placement: Sequence[int] | None = None,
    torchrun: bool = False,
) -> None:
    """Build the network, measure as `EmulatedCluster.measure` does, and tear the network down."""
    with cluster(graph, torchrun=torchrun) as built:
        built.measure(measurement, on_record, placement)


def spread(count: int, hosts: int) -> tuple[int, ...]:
    """Return the host of each of ``count`` ranks that fill the hosts in order and evenly."""
    return tuple(rank * min(hosts, count) // count for rank in range(count))


def _agents(network: EmulatedNetwork, hosts: Sequence[Host]) -> list[Agent]:
    """Return one torchrun agent per host; all meet at the first, and ranks are numbered host by host."""
    nodes = list(dict.fromkeys(hosts))
    share = len(hosts) // len(nodes)
    if list(hosts) != [node for node in nodes for _ in range(share)]:
        raise ValueError(
            "torchrun numbers ranks host by host, equally many per host; place them so, or fork them"
        )
    return [
        Agent(
            [
                *[*TORCHRUN, "--nproc-per-node", str(share)],
                *["--nnodes", str(len(nodes)), "--node-rank", str(number)],
                *["--master-addr", nodes[0].address, "--master-port", str(_PORT)],
            ],
            network.inside(node.rank),
            {"GLOO_SOCKET_IFNAME": node.interface},
        )
        for number, node in enumerate(nodes)
    ]


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
