"""Measure real training steps, under torchrun or on an emulated network."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ringside.real.collective.emulated import EmulatedCluster
from ringside.real.launch.follow import Row
from ringside.real.launch.torchrun import WorldSpec, run
from ringside.real.training.job import TrainingJob
from ringside.real.training.record import MeasuredRankStep, Said, Step, TrainingRecord
from ringside.sim.training.ddp.step import MeasuredNetwork


def measure_training(
    job: TrainingJob,
    on_record: Callable[[TrainingRecord], None] = lambda _: None,
    *,
    cluster: EmulatedCluster | None = None,
    wires: MeasuredNetwork | None = None,
) -> TrainingRecord:
    """Train on the ranks of the job's mesh: under torchrun here, or rank r in host r of an emulated network.

    ``wires`` is that network as measured, for the record. ``on_record`` is called after each step with all
    results until then. Raise `ringside.real.launch.follow.MeasureError` where a rank dies or hangs.
    """
    ranks = job.mesh.ranks
    if cluster and ranks > len(cluster.network.hosts):
        raise ValueError(
            f"{ranks} ranks, but the network has {len(cluster.network.hosts)} hosts; write fewer ranks"
        )
    steps: list[Step] = []
    fingerprint: dict[str, str] = {}

    def keep(row: Row) -> None:
        fingerprint.update(row["fingerprint"])
        steps.append(tuple(_seen(own) for own in row["ranks"]))
        on_record(TrainingRecord(job=job, steps=tuple(steps), fingerprint=fingerprint, wires=wires))

    if cluster:
        hosts = tuple(range(ranks))
        fingerprint |= cluster.settings(hosts)
        # computing ranks leave the rest of their cores to the network, in fair shares
        cluster.run(replace(job, realtime=True), hosts, keep)
    else:
        run(job, WorldSpec(ranks), keep)
    return TrainingRecord(job=job, steps=tuple(steps), fingerprint=fingerprint, wires=wires)


def _seen(own: Any) -> MeasuredRankStep:
    begin, end, operations = own
    return MeasuredRankStep(
        begin,
        end,
        tuple(
            Said(kind, nbytes, dtype, tuple(ranks), *rest) for kind, nbytes, dtype, ranks, *rest in operations
        ),
    )
