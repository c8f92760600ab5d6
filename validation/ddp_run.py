"""Measure DistributedDataParallel together with the network that a prediction needs.

On an emulated network that is ping-pong alone (`ringside.validation.emulated.links`). On this machine it is a
fit of the backend's all-reduce to a star, measured by the same processes before their steps: their ranks
share cores and memory, which ping-pong does not show.
"""

from collections.abc import Callable

from ringside.real.collective.emulated import Cluster
from ringside.real.ddp.job import DdpJob
from ringside.real.ddp.measure import Measured, measure_ddp
from ringside.sim.libraries.gloo import RENDEZVOUS
from ringside.sim.libraries.rules import rules_of
from ringside.sim.record import Record
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.record import DdpRecord, MeasuredNetwork
from ringside.sim.workload.workload import Workload
from ringside.topologies import star
from ringside.topologies.file import dumps
from ringside.validation.calibrate import calibrate
from ringside.validation.emulated.links import as_measured, measure_latency, measure_link

_PING_PONGS = 3
"""Other load makes a link seem slower, never faster: the best run counts."""


def record(
    model: Workload | str,
    job: DdpJob,
    ranks: int,
    cluster: Cluster | None = None,
    wires: MeasuredNetwork | None = None,
    on_record: Callable[[DdpRecord], None] = lambda _: None,
) -> DdpRecord:
    """Measure the job's steps: on the emulated cluster with its ``wires``, or on this machine.

    ``on_record`` is called after each step with all results until then.
    """

    def made(measured: Measured) -> DdpRecord:
        nonlocal wires
        wires = wires or _local_wires(measured, ranks, job.backend)
        return DdpRecord(
            workload=measured.workload,
            ranks=ranks,
            ddp=DataParallel(
                bucketing=job.bucketing,
                gradient_as_bucket_view=job.gradient_as_bucket_view,
                comm_hook=job.comm_hook,  # the hook that stamps buckets divides as torch's allreduce does
                powersgd=job.powersgd,
            ),
            workers=job.workers,
            wires=wires,
            memory_bandwidth=measured.memory_bandwidth if isinstance(model, str) else None,
            steps=measured.steps,
            fingerprint=measured.fingerprint,
            contention=measured.contention,
            crowding=measured.crowding,
            hook_s=measured.hook_s,
        )

    network = cluster.network if cluster else None
    return made(measure_ddp(model, job, ranks, lambda seen: on_record(made(seen)), network=network))


def emulated_wires(cluster: Cluster, ranks: int) -> MeasuredNetwork:
    """Return the cluster's links as ping-pong measures them, for Gloo on the first ``ranks`` hosts."""
    hosts = tuple(range(ranks))
    link = max((measure_link(cluster) for _ in range(_PING_PONGS)), key=lambda link: link.efficiency)
    latency = measure_latency(cluster, hosts)
    graph = as_measured(cluster.graph, hosts, link, latency)
    return MeasuredNetwork(topology=dumps(graph), library="gloo", launch_s=RENDEZVOUS * latency)


def _local_wires(measured: Measured, ranks: int, backend: str) -> MeasuredNetwork:
    """Fit the machine as a star to the backend's all-reduce; NCCL's is modelled as a ring."""
    library, algorithm = ("ideal", "ring") if rules_of(backend).on_stream else (backend, "auto")
    records = [
        Record(
            source="ringside measure ddp", cluster="this machine", library=library, algorithm=algorithm,
            collective="all_reduce", num_nodes=1, ranks=ranks, nbytes=nbytes, dtype="float32", redop="sum",
            time_s=seconds, statistic="median of the slowest rank",
        )
        for nbytes, seconds in measured.all_reduces
    ]  # fmt: skip
    (fit,) = calibrate(records, "star").fits
    parameters = fit.parameters
    graph = dumps(parameters.on(star(ranks)))
    return MeasuredNetwork(
        topology=graph,
        library=library,
        algorithm=algorithm,
        gamma=parameters.gamma,
        launch_s=parameters.launch,
    )
