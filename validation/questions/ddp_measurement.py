"""Training steps of DistributedDataParallel, measured together with the network that a prediction needs.

On an emulated network that is ping-pong alone (`ringside.real.collective.links`). On this machine it is a
fit of the backend's all-reduce to a star, measured by the same processes before their steps: their ranks
share cores and memory, which ping-pong does not show.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ringside.real.backends import ON_GPU, ON_SOCKETS, UNDER_TORCHRUN
from ringside.real.collective.links import EmulatedCluster, cluster, measured_network
from ringside.real.collective.measure import check_room
from ringside.real.ddp.job import HOOKS, SLEEPING, DdpJob, sleeping_layers
from ringside.real.ddp.measure import MeasuredSteps, measure_ddp
from ringside.real.questions.fields import OnRanks
from ringside.sim.libraries.rules import GLOO, rules_of
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import QuestionError, choices, option
from ringside.sim.record import Record
from ringside.sim.training.ddp.buckets import Bucketing, check_used
from ringside.sim.training.ddp.job import DataParallel, parse_hook
from ringside.sim.training.ddp.step import DdpRecord, MeasuredNetwork, workload_of
from ringside.sim.workload.models import is_model
from ringside.sim.workload.workload import Workload
from ringside.topologies import star
from ringside.topologies.file import dumps
from ringside.validation.questions.training import OfBuckets


@dataclass(frozen=True, kw_only=True)
class DdpMeasurement(OfBuckets, OnRanks):
    """Training steps of DistributedDataParallel, measured with a model or with sleeping layers.

    ``model`` is ``sleeping``, a workload's file, or ``FILE.py:NAME``.
    """

    schema: ClassVar[str] = "measure ddp"

    model: str = option(
        "Your module, or a workload's YAML, whose layers sleep for their compute time.",
        metavar="sleeping|FILE.py:NAME|FILE", default=SLEEPING,
    )  # fmt: skip
    backend: str = option("Gloo on CPUs, NCCL on GPUs.", metavar=choices(UNDER_TORCHRUN), default="gloo")
    iterations: int = option("Timed steps.", "-n", "--iterations", default=20)
    comm_hook: str | None = option(
        f"One of {', '.join(HOOKS)}; powersgd:rank=4,start=10.",
        metavar="HOOK", default=None, default_text=HOOKS[0],
    )  # fmt: skip
    workers: int = option("Collectives that Gloo runs concurrently.", default=GLOO.workers)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.emulate is not None and self.backend not in ON_SOCKETS:
            raise QuestionError(f"`backend` {self.backend} cannot run on an emulated network; write gloo")

    @cached_property
    def job(self) -> DdpJob:
        """The job for every rank; raise ValueError for an impossible one."""
        hook, powersgd = parse_hook(self.comm_hook)
        return DdpJob(
            bucketing=Bucketing(**self.bucketing), comm_hook=hook or HOOKS[0], powersgd=powersgd,
            backend=self.backend, gradient_as_bucket_view=self.gradient_as_bucket_view,
            workers=1 if self.backend in ON_GPU else self.workers,
            iterations=self.iterations, timeout_s=self.timeout,
        )  # fmt: skip

    @cached_property
    def _trained(self) -> Workload | str:
        """The workload of sleeping layers, or the name of a module."""
        if is_model(self.model):
            from ringside.real.model.user_model import build  # loads torch, for which help must not wait

            build(self.model)
            return self.model
        if self.model != SLEEPING and not Path(self.model).exists():
            raise QuestionError(
                f"{self.model}: no such file; write {SLEEPING}, FILE.py:NAME or a workload's YAML file"
            )
        if self.backend in ON_GPU:
            raise QuestionError("sleeping layers leave a GPU idle; write `model` FILE.py:NAME with nccl")
        workload = sleeping_layers() if self.model == SLEEPING else workload_of(Path(self.model))
        if not workload.parameters:
            raise QuestionError(f"{self.model} has no parameters to reduce; add some")
        used = set(workload.arrival)
        unused = [one.name for place, one in enumerate(workload.parameters) if place not in used]
        check_used(unused, self.job.bucketing)
        if any(tensor.sparse for tensor in workload.parameters):
            raise QuestionError(f"{self.model}: sleeping layers have dense gradients only; remove 'sparse'")
        return workload

    def check(self, *, force: bool = False) -> None:
        """Raise ValueError for an impossible measurement, or for too many ranks unless forced."""
        if self.job and not force:
            check_room(self.count, 0)

    def ask(
        self, *, force: bool = False, on_record: Callable[[DdpRecord], None] = lambda _: None
    ) -> "DdpMeasurements":
        """Train; call ``on_record`` after each step with all steps until then.

        ``force`` starts any number of ranks.
        """
        self.check(force=force)
        model, ranks = self._trained, self.count
        if self.graph is None:
            return DdpMeasurements(self, measure_record(model, self.job, ranks, on_record=on_record))
        with cluster(self.graph) as built:
            wires = measured_network(built, ranks)
            record = measure_record(model, self.job, ranks, built, wires, on_record)
        return DdpMeasurements(self, record)


@dataclass(frozen=True, slots=True)
class DdpMeasurements(AnswerOnDemand):
    """The answer: all steps; a row for each bucket of the median step."""

    question: DdpMeasurement
    record: DdpRecord
    notes: Sequence[str] = ()

    @property
    def headline(self) -> str:
        """The median step, and what it hides."""
        step = self.record.median
        times = sorted(step.step_s * 1e3 for step in self.record.steps)
        return (
            f"{step.step_s * 1e3:.1f} ms a step, median of {len(times)} from {times[0]:.1f} to "
            f"{times[-1]:.1f} ms: {step.workload} on {step.ranks} ranks, {step.overlap_efficiency:.0%} of "
            "communication hidden"
        )

    @property
    def grounds(self) -> str:
        """What the step consists of."""
        step = self.record.median
        return (
            f"compute {step.compute_s * 1e3:.1f} ms, communication {step.communication_s * 1e3:.1f} ms, "
            f"exposed {step.exposed_s * 1e3:.1f} ms; every gradient was checked against the exact average"
        )

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs() | {"ranks": self.question.count}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The buckets of the median step, in seconds and bytes."""
        return [asdict(bucket) for bucket in self.record.median.buckets]


def measure_record(
    model: Workload | str,
    job: DdpJob,
    ranks: int,
    cluster: EmulatedCluster | None = None,
    wires: MeasuredNetwork | None = None,
    on_record: Callable[[DdpRecord], None] = lambda _: None,
) -> DdpRecord:
    """Measure the job's steps: on the emulated cluster with its ``wires``, or on this machine.

    ``on_record`` is called after each step with all results until then.
    """

    def made(measured: MeasuredSteps) -> DdpRecord:
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


def _local_wires(measured: MeasuredSteps, ranks: int, backend: str) -> MeasuredNetwork:
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
    from ringside.validation.calibrate import calibrate  # loads scipy

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
