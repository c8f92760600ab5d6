"""Training steps of FSDP2, pipelines, tensor, context and expert parallelism, measured."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

from ringside.real.collective.links import cluster, measured_network
from ringside.real.collective.measure import check_room
from ringside.real.questions.fields import OnRanks
from ringside.real.training.job import DTYPES, MODELS, ExpertLayers, Model, TrainingJob
from ringside.real.training.record import TrainingRecord, measure_training
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import QuestionError, choices, option
from ringside.sim.training.pipeline.schedules import SCHEDULES, find_schedule
from ringside.sim.training.tensor.context import METHODS
from ringside.topologies.units import parse_duration, shown

STRATEGIES = ("fsdp", "hsdp", "zero_redundancy", "ddp")


@dataclass(frozen=True, kw_only=True)
class TrainingMeasurement(OnRanks):
    """Training steps under a layout, measured; ``job`` is what the ranks carry out."""

    schema: ClassVar[str] = "measure train"

    model: str = option(
        "For example decoder:layers=4.", metavar=f"{'|'.join(MODELS)}[:KEY=VALUE,...]", default="sleeping"
    )
    iterations: int = option("Timed steps.", "-n", "--iterations", default=20)
    strategy: str | None = option(
        "Data-parallel strategy.",
        metavar=choices(STRATEGIES), default=None, default_text="fsdp; ddp with experts only",
    )  # fmt: skip
    shard: int | None = option(
        "hsdp: ranks that shard one copy of the parameters.",
        default=None, default_text="half of them", minimum=1,
    )  # fmt: skip
    tp: int = option("Ranks that share each layer.", default=1, minimum=1)
    cp: int = option("Ranks that share each sequence.", default=1, minimum=1)
    cp_method: str | None = option(
        "Method of context parallelism.", metavar=choices(METHODS), default=None, default_text="zigzag"
    )
    pp: int = option("Ranks that share the layers.", default=1, minimum=1)
    ep: int | None = option(
        "Ranks that share the experts.", default=None, default_text="all, of experts", minimum=1
    )
    schedule: str | None = option(
        f"Pipeline schedule: {', '.join(SCHEDULES)}.", metavar="NAME", default=None, default_text="1f1b"
    )
    virtual: int | None = option(
        "Stages per rank.", default=None, default_text="1; 2 where a schedule needs them", minimum=1
    )
    micro_batches: int | None = option(
        "Micro-batches per step.", default=None, default_text="1; in a pipeline twice its ranks"
    )
    keep_gathered: bool = option("FSDP's reshard_after_forward=False.", default=False)
    no_sync: bool = option("Reduce gradients only in the last backward pass.", default=False)
    sequence_parallel: bool = option("Split tokens among tensor-parallel ranks.", default=False)
    param_dtype: str = option("Type of FSDP's gathers.", metavar=choices(DTYPES), default="float32")
    reduce_dtype: str = option("Type of FSDP's reductions.", metavar=choices(DTYPES), default="float32")

    @cached_property
    def job(self) -> TrainingJob:
        """The job; raise ValueError for an impossible one."""
        model = model_of(self.model)
        if self.pp == 1 and self.schedule is not None:
            raise QuestionError("`schedule` needs a pipeline; add `pp` 2, or remove it")
        if self.cp == 1 and self.cp_method is not None:
            raise QuestionError("`cp_method` needs context-parallel ranks; add `cp` 2")
        if isinstance(model, ExpertLayers):
            return self._of_experts(model)
        if self.ep not in (None, 1):
            raise QuestionError(f"{self.model} has no experts; write `model` experts, or remove `ep`")
        strategy = self.strategy or "fsdp"
        if strategy not in ("fsdp", "hsdp", "zero_redundancy"):
            raise QuestionError(f"{strategy!r} is not measured here; write fsdp, hsdp or zero_redundancy")
        data = self._data_parallel()
        shard = _group(strategy, data, self.shard)
        usual = find_schedule(self._schedule).stages_a_rank or 2 if self.pp > 1 else 1
        return TrainingJob(
            model=model, strategy="fsdp" if strategy == "hsdp" else strategy, shard=shard,
            replicate=data // shard, virtual=self.virtual or usual,
            micro_batches=self._micro_batches(2 * self.pp if self.pp > 1 else 1), **self._others,
        )  # fmt: skip

    def _of_experts(self, model: ExpertLayers) -> TrainingJob:
        if self.strategy not in (None, "ddp"):
            raise QuestionError(f"experts train with `strategy` ddp here, not {self.strategy}; remove it")
        return TrainingJob(
            model=model, replicate=self.count, expert=self.ep or self.count, shard=self.shard or 1,
            virtual=self.virtual or 1, micro_batches=self._micro_batches(1), **self._others,
        )  # fmt: skip

    def _data_parallel(self) -> int:
        """Return the number of data-parallel ranks."""
        data, rest = divmod(self.count, self.tp * self.cp * self.pp)
        if rest or not data:
            context = f" times `cp` {self.cp}" if self.cp > 1 else ""
            raise QuestionError(
                f"{self.count} ranks do not divide by `tp` {self.tp}{context} times `pp` {self.pp}; "
                "write degrees that do"
            )
        return data

    @property
    def _schedule(self) -> str:
        return self.schedule or "1f1b"

    def _micro_batches(self, usual: int) -> int:
        return usual if self.micro_batches is None else self.micro_batches

    @property
    def _others(self) -> dict[str, Any]:
        """The fields of the job that do not depend on its model."""
        return {
            "tensor": self.tp, "context": self.cp, "context_method": self.cp_method or "zigzag",
            "pipeline": self.pp, "schedule": self._schedule, "reshard": not self.keep_gathered,
            "no_sync": self.no_sync, "sequence_parallel": self.sequence_parallel,
            "param_dtype": self.param_dtype, "reduce_dtype": self.reduce_dtype,
            "iterations": self.iterations, "timeout_s": self.timeout,
        }  # fmt: skip

    def check(self, *, force: bool = False) -> None:
        """Raise ValueError for an impossible job, or for too many ranks unless forced."""
        nbytes = self.job.model.nbytes
        if not force:
            check_room(self.count, nbytes)

    def ask(
        self, *, force: bool = False, on_record: Callable[[TrainingRecord], None] = lambda _: None
    ) -> "TrainingMeasurements":
        """Train; call ``on_record`` after each step with all steps until then.

        ``force`` starts any number of ranks of any size.
        """
        self.check(force=force)
        if self.graph is None:
            return TrainingMeasurements(self, measure_training(self.job, on_record))
        with cluster(self.graph) as built:
            wires = measured_network(built, self.count)
            record = measure_training(self.job, on_record, cluster=built, wires=wires)
        return TrainingMeasurements(self, record)


@dataclass(frozen=True, slots=True)
class TrainingMeasurements(AnswerOnDemand):
    """The answer: all steps; a row for each kind, size and group of collectives in the median step."""

    question: TrainingMeasurement
    record: TrainingRecord
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The median step."""
        record = self.record
        return (
            f"{record.step_s * 1e3:.1f} ms a step, median of {len(record.steps)}: "
            f"{record.job.model.kind} layers on {record.job.mesh.ranks} ranks"
        )

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs() | {"ranks": self.question.count}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The number of collectives and messages of the median step, over all ranks."""
        median = self.record.median
        count = Counter((one.kind, one.nbytes, len(one.ranks)) for rank in median for one in rank.said)
        return [
            {"kind": kind, "size_bytes": nbytes, "ranks": ranks, "times_a_step": times}
            for (kind, nbytes, ranks), times in sorted(count.items())
        ]


def _group(strategy: str, data: int, shard: int | None) -> int:
    """Return the number of data-parallel ranks that shard the parameters together."""
    own = {"fsdp": data, "zero_redundancy": 1}.get(strategy, shard or data // 2)
    if strategy != "hsdp" and shard is not None:
        raise QuestionError(f"`shard` needs `strategy` hsdp, not {strategy}; remove it")
    if strategy == "hsdp" and (own < 2 or data % own or own == data):
        fitting = ", ".join(str(count) for count in range(2, data) if data % count == 0)
        raise QuestionError(
            f"hsdp cannot form groups of {own} of {data} data-parallel ranks; write "
            + (f"`shard` {fitting}" if fitting else "`strategy` fsdp, or more ranks: `ranks` 4")
        )
    return own


def model_of(text: str) -> Model:
    """Parse a model such as ``sleeping`` or ``decoder:layers=4,hidden=128``."""
    name, _, changes = text.partition(":")
    if name not in MODELS:
        raise ValueError(f"unknown model {text!r}; write {' or '.join(MODELS)}, or decoder:layers=4")
    model = MODELS[name]()
    known = {field.name: getattr(model, field.name) for field in fields(model) if field.name != "kind"}
    given: dict[str, Any] = {}
    for change in filter(None, changes.split(",")):
        key, _, value = change.partition("=")
        if key not in known:
            raise ValueError(
                f"unknown figure {shown(change)} of {name}; write one of {', '.join(known)}, as layers=4"
            )
        if key.endswith("_s"):
            given[key] = parse_duration(value)
        elif isinstance(known[key], float):
            given[key] = _share(change, value)
        elif value.isdecimal() and 0 < int(value) <= 1 << 20:
            given[key] = int(value)
        else:
            raise ValueError(f"{shown(change)}: write a whole number from 1 to 1048576, such as {key}=4")
    return replace(model, **given)


def _share(change: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{shown(change)}: write a share from 0 to 1, such as 0.25") from None
