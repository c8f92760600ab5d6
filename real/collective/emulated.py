"""Measure on an emulated network, with ranks in the hosts of a topology."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256

from ringside.real.backends import ON_SOCKETS
from ringside.real.collective.measure import Measurement, job_of, record_of
from ringside.real.emulate import EmulatedNetwork, Host, emulate
from ringside.real.emulate.queues import BURST, MTU, SEND_WINDOW
from ringside.real.launch.follow import RankJob, Row
from ringside.real.launch.forks import Forks
from ringside.real.launch.torchrun import TORCHRUN, Agent, run_agents
from ringside.sim.record import Record
from ringside.topologies.file import dumps
from ringside.topologies.graph import Topology, ranks
from ringside.topologies.placement import check_placement
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
