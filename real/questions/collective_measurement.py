"""A collective's times, measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from ringside.real.backends import BACKENDS, ON_SOCKETS
from ringside.real.collective.links import measure_emulated
from ringside.real.collective.measure import DTYPES, Measurement, check_room, measure, warnings
from ringside.real.launch.forks import Forks
from ringside.real.launch.torchrun import WorldSpec
from ringside.real.questions.fields import OnRanks
from ringside.sim.collective import KINDS, kind_of
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import BySize, QuestionError, argument, choices, option
from ringside.sim.record import Record, to_fields
from ringside.topologies.names import one_of
from ringside.topologies.units import format_duration, format_size, parse_size

OTHERS = ("ddp", "train", "compute", "elastic")
"""Other measurements, each a question and a command of its own."""


def _collective(text: str) -> str:
    if text in OTHERS:
        raise QuestionError(f"{text} is a command with its own options; write ringside measure {text}")
    try:
        return kind_of(text)
    except ValueError:
        known = (*KINDS, *OTHERS)
        raise QuestionError(f"unknown measurement {text!r}; write {one_of(known, text)}") from None


@dataclass(frozen=True, kw_only=True)
class CollectiveMeasurement(BySize, OnRanks):
    """A collective's times, measured on this machine or on an emulated network: a record for each size.

    ``algorithm`` is ``library`` for the backend's own collective, ``ping_pong``, or one of Ringside's, whose
    schedule is run.
    """

    schema: ClassVar[str] = "measure"

    collective: str = argument(
        f"One of {', '.join(KINDS)}. Commands with options of their own: "
        f"{', '.join(f'measure {name}' for name in OTHERS)}.",
        parse=_collective, completions=(*KINDS, *OTHERS),
    )  # fmt: skip
    backend: str = option(
        "Gloo on CPUs, NCCL on GPUs, MPI under mpirun.", metavar=choices(BACKENDS), default="gloo"
    )
    algorithm: str = option(
        "library (the backend's own), ring, tree, ..., or ping_pong.", metavar="NAME", default="library"
    )
    begin: int = option(
        "Smallest size.", "-b", "--begin", metavar="SIZE", default="64K", parse=parse_size, minimum=0
    )
    end: int = option(
        "Largest size.", "-e", "--end", metavar="SIZE", default="16M", parse=parse_size, minimum=0
    )
    iterations: int = option("Timed iterations per size.", "-n", "--iterations", default=20)
    warmup: int = option("Untimed iterations per size.", "-w", "--warmup", default=2)
    dtype: str = option(f"Element type: {', '.join(DTYPES)}.", metavar="TYPE", default="float32")
    nnodes: int = option("Nodes; run the same command on each.", default=1)
    rdzv_endpoint: str | None = option("Rendezvous.", metavar="HOST:PORT", default=None)
    torchrun: bool = option("Emulated: start a torchrun agent on every host.", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.emulate is None:
            if self.torchrun:
                raise QuestionError("without `emulate` torchrun starts the ranks anyway; remove `torchrun`")
        elif self.nnodes > 1 or self.rdzv_endpoint or self.backend not in ON_SOCKETS:
            raise QuestionError(
                "an emulated network runs on this machine, over Gloo; remove `nnodes` and `backend`"
            )

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement that the options describe; raise ValueError for an impossible one."""
        return Measurement(
            collective=self.collective,
            world=WorldSpec(self.count, self.nnodes, self.rdzv_endpoint),
            sizes=self.sizes,
            backend=self.backend,
            algorithm=self.algorithm,
            dtype=self.dtype,
            iterations=self.iterations,
            warmup=self.warmup,
            timeout_s=self.timeout,
        )

    @property
    def warnings(self) -> list[str]:
        """Conditions that degrade the measurement, a sentence each."""
        if self.emulate is None:
            return warnings(self.measurement)
        ignored = "latency= is ignored: an emulated network has this machine's own latency"
        return [ignored] if "latency" in self.settings else []

    def check(self, *, force: bool = False) -> None:
        """Raise ValueError for an impossible measurement, or for too many ranks unless forced."""
        if not force:
            check_room(self.measurement.world.per_node, max(self.sizes))

    def ask(
        self, *, force: bool = False, on_record: Callable[[Record], None] = lambda _: None,
        forks: Forks | None = None,
    ) -> "CollectiveMeasurements":  # fmt: skip
        """Measure each size; call ``on_record`` with each record, so that none is lost if a later size fails.

        ``force`` starts any number of ranks with any buffers. ``forks`` start the ranks of several questions
        over Gloo on this machine, which saves loading torch in each.
        """
        self.check(force=force)
        records: list[Record] = []

        def keep(record: Record) -> None:
            records.append(record)
            on_record(record)

        if self.graph is None:
            measure(self.measurement, keep, forks)
        else:
            measure_emulated(self.graph, self.measurement, keep, torchrun=self.torchrun)
        return CollectiveMeasurements(self, records)


@dataclass(frozen=True, slots=True)
class CollectiveMeasurements(AnswerOnDemand):
    """The answer: a record for each size; none on a node without rank 0."""

    question: CollectiveMeasurement
    records: Sequence[Record]

    @property
    def headline(self) -> str:
        """The time and bus bandwidth of the largest size."""
        if not self.records:
            return "no record: rank 0 runs on another node, which writes them"
        last = self.records[-1]
        return (
            f"{format_duration(last.time_s, 4)}, {last.busbw / 1e9:.4g} GB/s bus bandwidth for "
            f"{format_size(last.nbytes)}: {last.collective} by {last.library}/{last.algorithm} over "
            f"{last.backend} on {last.ranks} ranks"
        )

    @property
    def grounds(self) -> str:
        """How it was measured."""
        return "; ".join(
            f"nodes: {one.num_nodes}, {one.dtype}; {one.statistic} of {one.iterations} iterations; every "
            "rank's result was checked against the exact answer"
            for one in self.records[:1]
        )

    @property
    def doubts(self) -> Sequence[str]:
        """Conditions that degrade the measurement."""
        return self.notes

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs() | {"ranks": self.question.count}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The records in plain values."""
        return [to_fields(record) for record in self.records]

    @property
    def notes(self) -> Sequence[str]:
        """Conditions that degrade the measurement."""
        return self.question.warnings
