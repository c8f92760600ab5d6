"""Training steps measured, and as a file: every rank's communication with its times, the environment."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median_low
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BeforeValidator, ConfigDict, TypeAdapter

from ringside.real.collective.links import EmulatedCluster
from ringside.real.launch.follow import Row
from ringside.real.launch.torchrun import WorldSpec, run
from ringside.real.training.job import TrainingJob
from ringside.sim.record import TRAINING_SCHEMA, RecordError, read_steps
from ringside.sim.training.ddp.step import MeasuredNetwork
from ringside.sim.training.mesh import DATA


class Said(NamedTuple):
    """One collective or message of a rank: its kind, bytes and partners.

    Bytes are those of `ringside.sim.collective.Collective`, or a message's; of an all_to_all those that the
    rank has for others. ``ranks`` are the group's. ``peer`` is the other end of a message, a rank of the job;
    -1 for a collective. ``begin_s`` is its call, ``end_s`` the end of the wait for it, or of the step without
    one.
    """

    kind: str
    nbytes: int
    dtype: str
    ranks: tuple[int, ...]
    peer: int
    begin_s: float
    end_s: float


class MeasuredRankStep(NamedTuple):
    """A step on one rank, in seconds since the first one began; ``said`` in the order of calls."""

    begin_s: float
    end_s: float
    said: tuple[Said, ...]


Step = tuple[MeasuredRankStep, ...]
"""One step on all ranks."""

HOST_STEPS = 5
"""The most steps without communication; they vary little."""


def length(step: Step) -> float:
    """Return the seconds from the first rank's begin to the last one's end."""
    return max(rank.end_s for rank in step)


def _in_todays_words(job: Any) -> Any:
    """Convert a job of an earlier format: ``sync_each``, false by default, is the inverse of ``no_sync``.

    It had no effect with a single micro-batch, with a pipeline, and with experts.
    """
    if not isinstance(job, dict) or "sync_each" not in job:
        return job
    today = {name: value for name, value in job.items() if name != "sync_each"}
    model = job.get("model")
    accumulates = job.get("micro_batches", 1) > 1 and job.get("pipeline", 1) == 1
    shares = any(job.get(name, 1) > 1 for name in DATA)
    routes = isinstance(model, dict) and model.get("kind") == "experts"
    return today | {"no_sync": not job["sync_each"] and accumulates and shares and not routes}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """Steps of one job, and the environment; ``wires`` where the network was emulated.

    ``host_steps`` are steps in which communication moves nothing and takes no time: there the ranks only
    sleep and do the host's own work.
    """

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    job: Annotated[TrainingJob, BeforeValidator(_in_todays_words)]
    steps: tuple[Step, ...]
    fingerprint: dict[str, str]
    wires: MeasuredNetwork | None = None
    host_steps: tuple[Step, ...] = ()

    @property
    def median(self) -> Step:
        """The step of median length, whole, as it happened."""
        middle = median_low(map(length, self.steps))
        return next(step for step in self.steps if length(step) == middle)

    @property
    def step_s(self) -> float:
        """The median length of a step."""
        return length(self.median)

    @property
    def spread(self) -> float:
        """The range from the fastest step to the slowest, over the median."""
        times = [length(step) for step in self.steps]
        return (max(times) - min(times)) / self.step_s

    def dumps(self) -> str:
        """Return the record as JSON text."""
        content = _ADAPTER.dump_python(self, mode="json")
        return json.dumps({"schema": TRAINING_SCHEMA, **content}) + "\n"


_ADAPTER = TypeAdapter(TrainingRecord)


def read(path: Path) -> TrainingRecord:
    """Read a record; raise `ringside.sim.record.RecordError` with everything that is wrong with it."""
    record = read_steps(path, TRAINING_SCHEMA, _ADAPTER, "ringside measure train")
    steps = (*record.steps, *record.host_steps)
    if not record.steps or any(len(step) != record.job.mesh.ranks for step in steps):
        raise RecordError(f"{path}: no step with all of its ranks; make one with ringside measure train")
    return record


def measure_training(
    job: TrainingJob,
    on_record: Callable[[TrainingRecord], None] = lambda _: None,
    *,
    cluster: EmulatedCluster | None = None,
    wires: MeasuredNetwork | None = None,
) -> TrainingRecord:
    """Train on the ranks of the job's mesh: under torchrun here, or rank r in host r of an emulated network.

    ``wires`` is that network as measured, for the record. On it the job first runs without communication.
    ``on_record`` is called after each other step with all results until then. Raise
    `ringside.real.launch.follow.MeasureError` where a rank dies or hangs.
    """
    ranks = job.mesh.ranks
    if cluster and ranks > len(cluster.network.hosts):
        raise ValueError(
            f"{ranks} ranks, but the network has {len(cluster.network.hosts)} hosts; write fewer ranks"
        )
    steps: list[Step] = []
    host_steps: list[Step] = []
    fingerprint: dict[str, str] = {}

    def record() -> TrainingRecord:
        return TrainingRecord(
            job=job, steps=tuple(steps), fingerprint=fingerprint, wires=wires, host_steps=tuple(host_steps)
        )

    def keep(row: Row) -> None:
        fingerprint.update(row["fingerprint"])
        steps.append(_step(row))
        on_record(record())

    if cluster:
        hosts = tuple(range(ranks))
        fingerprint |= cluster.settings(hosts)
        # computing ranks leave the rest of their cores to the network, in fair shares
        placed = replace(job, realtime=True)
        if job.data_independent:
            fake = replace(placed, moves=False, iterations=min(job.iterations, HOST_STEPS))
            cluster.run(fake, hosts, lambda row: host_steps.append(_step(row)))
        cluster.run(placed, hosts, keep)
    else:
        run(job, WorldSpec(ranks), keep)
    return record()


def _step(row: Row) -> Step:
    return tuple(map(_seen, row["ranks"]))


def _seen(own: Any) -> MeasuredRankStep:
    begin, end, operations = own
    return MeasuredRankStep(
        begin,
        end,
        tuple(
            Said(kind, nbytes, dtype, tuple(ranks), *rest) for kind, nbytes, dtype, ranks, *rest in operations
        ),
    )
