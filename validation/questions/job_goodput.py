"""Goodput of a long job after failures, checkpoints and restarts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

from ringside.sim.faults.file import read_faults
from ringside.sim.faults.law import learn
from ringside.sim.goodput.cost import Cost
from ringside.sim.goodput.failures import parse_causes
from ringside.sim.goodput.formulas import best_interval, daly, young
from ringside.sim.goodput.job import DAY_S, Cause, Checkpoints, LongJob, causes_of_mtbf
from ringside.sim.goodput.published import TYPICAL, Published, published
from ringside.sim.goodput.study import Goodput, around, check_trials, study
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.job_faults import JobFaults
from ringside.sim.questions.priced import PricedQuestion
from ringside.sim.questions.question import QuestionError, argument, option
from ringside.topologies.units import format_count, format_span, parse_amount, parse_duration
from ringside.validation.questions.models import tokens_of
from ringside.validation.questions.step_time import DataParallelSteps, StepTime

WORK_S = 30 * DAY_S
WHOLE = 0.99
GPUS_PER_NODE = 8
_BLANK = LongJob(nodes=1, causes=(), work_s=WORK_S, checkpoints=Checkpoints(write_s=0.0), restart=TYPICAL)


def _durations(texts: Sequence[str]) -> tuple[float, ...]:
    return tuple(map(parse_duration, texts))


def _duration(help: str, default_text: str | None = None) -> Any:
    return option(help, metavar="DURATION", default=None, default_text=default_text, parse=parse_duration)


def _published_or(seconds: float) -> str:
    return f"{format_span(seconds)}, or as published"


@dataclass(frozen=True, kw_only=True)
class JobGoodput(PricedQuestion):
    """Goodput of a long job after failures, checkpoints and restarts; durations are in seconds.

    ``training`` names a published training, whose figures other fields replace. ``interval`` is the training
    between two checkpoints, the best one by default; with the time of a step it is rounded to whole steps.
    That is ``step``, or `StepTime` of ``model`` on ``ranks`` of ``cluster``, which also say the nodes.
    """

    schema: ClassVar[str] = "goodput"

    training: str | None = argument(
        "A published training; all are listed without it.", metavar="[TRAINING]", default=None
    )
    model: str | None = option(
        "A model, or a recorded job: its step is predicted, in place of --step and --nodes.",
        metavar="NAME[:SIZE]|FILE", default=None,
    )  # fmt: skip
    cluster: str | None = option(
        "--model: a named cluster, or a YAML file.", metavar="NAME[:COUNT]|FILE", default=None
    )
    ranks: int | None = option("--model: number of ranks.", "-g", "--ranks", default=None, default_text="all")
    nodes: int | None = option("Nodes of the job.", default=None)
    gpus_per_node: int | None = option("GPUs per node.", default=None, default_text=str(GPUS_PER_NODE))
    failures: Sequence[str] = option(
        "gpu=2.4/1000node-days,node-lost or software=1/gpu-year,hang or 8/day; repeat for more.",
        metavar="[CAUSE=]RATE", default=(), parse=tuple, repeats=True,
    )  # fmt: skip
    mtbf: float | None = _duration("Mean time between failures of the whole job: 3h")
    faults: str | None = option(
        "Recorded faults of a cluster's nodes, JSON or CSV, in place of failure rates.",
        metavar="FILE", default=None,
    )  # fmt: skip
    watched: int | None = option(
        "--faults: the cluster's nodes, where its file does not say.", metavar="NODES", default=None
    )
    whole: float | None = option(
        "--faults: share of the time for which spares keep the job whole.",
        metavar="SHARE", default=None, default_text="0.99",
    )  # fmt: skip
    work: float | None = _duration("Training time without failures: 54d", _published_or(WORK_S))
    checkpoint: float | None = _duration("Pause of training for a checkpoint: 30s")
    persist: float | None = _duration("Asynchronous: time until a restart can use a checkpoint: 2min.", "0s")
    detect: float | None = _duration("Time to detect a failure.", _published_or(TYPICAL.detect_s))
    timeout: float | None = _duration("Timeout of a hanging collective.", _published_or(TYPICAL.timeout_s))
    restart: float | None = _duration(
        "Time to restart: stop, rendezvous, processes, imports, communicators.",
        _published_or(TYPICAL.stop_s + TYPICAL.rendezvous_s + TYPICAL.start_s),
    )
    load: float | None = _duration("Time to read a checkpoint.", _published_or(TYPICAL.load_s))
    repair: float | None = _duration("Time to repair a lost node.", _published_or(TYPICAL.repair_s))
    spares: int | None = option("Spare nodes.", default=None, default_text="0; with --faults by --whole")
    replica: int | None = option(
        "Elastic: continue with whole replicas of this many nodes.", metavar="NODES", default=None
    )
    interval: Sequence[float] = option(
        "Time between checkpoints; repeat for more.",
        metavar="DURATION", default=(), default_text="best", parse=_durations, repeats=True,
    )  # fmt: skip
    step: float | None = _duration("Time of a step: intervals are whole steps.")
    step_tokens: float | None = option(
        "--tokens: those of a step: 16M.", metavar="TOKENS", default=None, parse=parse_amount
    )
    trials: int = option("Monte Carlo draws.", default=40)
    seed: int = option("Random seed.", default=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model is None:
            if given := self.changed("cluster", "ranks"):
                raise QuestionError(f"`{given[0]}` is of a `model`; write `model` too, or leave it out")
        elif self.cluster is None:
            raise QuestionError("`model` needs the cluster that it is trained on; write `cluster` dgx-h100:8")
        elif given := self.changed("step", "nodes", "gpus_per_node"):
            raise QuestionError(f"`model` and `{given[0]}` both say what a step is; remove one of them")

    @cached_property
    def model_step(self) -> "ModelStep | None":
        """The step of the model on its cluster; None without a model."""
        if self.model is None or self.cluster is None:
            return None
        question = StepTime(model=self.model, cluster=self.cluster, ranks=self.ranks)
        answer = question.ask()
        step = answer.steps[0].step if isinstance(answer, DataParallelSteps) else answer.step
        each, placed = tokens_of(self.model), question.libraries.placed
        return ModelStep(
            step_s=step.step_s,
            nodes=len(placed),
            gpus_per_node=max(placed),
            tokens=None if each is None or step.samples is None else each * step.samples,
            says="; ".join([answer.headline, *answer.rests_on[:1]]),
        )

    @property
    def step_s(self) -> float | None:
        """The time of a step in seconds; None where nothing says it."""
        return self.model_step.step_s if self.model_step else self.step

    @property
    def _step_tokens(self) -> float | None:
        own = self.model_step.tokens if self.model_step else None
        return own if self.step_tokens is None else self.step_tokens

    @property
    def _nodes(self) -> int | None:
        return self.model_step.nodes if self.model_step else self.nodes

    @property
    def steps(self) -> int | None:
        """The steps in which all tokens are trained on; None where they are not given."""
        if self.tokens is None:
            if self.step_tokens is not None:
                raise QuestionError("`step_tokens` needs all tokens; write `tokens` 15T, or leave it out")
            return None
        tokens = self._step_tokens
        if not self.step_s:
            raise QuestionError("`tokens` needs the time of a step; write for example `step` 12s, or `model`")
        if not tokens:
            raise QuestionError("`tokens` needs those of a step; write for example `step_tokens` 16M")
        if self.work is not None:
            raise QuestionError("`tokens` and `work` both say how long to train; remove one of them")
        return math.ceil(self.tokens / tokens)

    @property
    def known(self) -> Published | None:
        """The published training; None for a custom job."""
        return None if self.training is None else published(self.training)

    @cached_property
    def job_faults(self) -> JobFaults | None:
        """The recorded faults and their law, for the job and its spares; None without a file."""
        if self.faults is None:
            if given := self.changed("watched", "whole"):
                raise QuestionError(
                    f"`{given[0]}` is of recorded faults; write `faults` too, or leave it out"
                )
            return None
        if given := self.changed("failures", "mtbf", "repair"):
            raise QuestionError(
                f"`faults` has failures and repairs, and so has `{given[0]}`; remove one of them"
            )
        share = WHOLE if self.whole is None else self.whole
        if not 0 < share < 1:
            raise QuestionError(f"`whole` {share:g}; write a share of the time such as 0.99")
        history = read_faults(self.faults, self.watched)
        law, nodes, spares = learn(history), self._nodes, self.spares
        if nodes is None and self.known:
            nodes = self.known.job.nodes
        if nodes is None:
            nodes = law.largest_job(share) if spares is None else law.nodes - spares
        if spares is None:
            spares = law.spares(nodes, share)
        return JobFaults(history=history, law=law, nodes=nodes, spares=spares, seed=self.seed)

    def job(self) -> LongJob:
        """Return the published job with changed fields, or a custom job."""
        known, faults = self.known, self.job_faults
        if known is None:
            self._check_complete()
        old = known.job if known else _BLANK
        sized = replace(
            old,
            nodes=faults.nodes if faults else old.nodes if self._nodes is None else self._nodes,
            spares=faults.spares if faults else old.spares if self.spares is None else self.spares,
            replica_nodes=old.replica_nodes if self.replica is None else self.replica,
        )
        starting = _given(
            detect_s=self.detect, timeout_s=self.timeout, start_s=self.restart, load_s=self.load,
            repair_s=faults.repair_s if faults else self.repair,
        )  # fmt: skip
        if self.restart is not None:
            starting |= {"stop_s": 0.0, "rendezvous_s": 0.0}  # restart includes them
        work_s = old.work_s if self.work is None else self.work
        if self.steps is not None and self.step_s is not None:
            work_s = self.steps * self.step_s
        return replace(
            sized,
            causes=faults.causes if faults else self._causes(sized),
            checkpoints=replace(old.checkpoints, **_given(write_s=self.checkpoint, persist_s=self.persist)),
            restart=replace(old.restart, **starting),
            work_s=work_s,
        )

    def ask(self, *, curve: int = 0, on_interval: Callable[[float], None] = lambda _: None) -> "JobGoodputs":
        """Simulate the job with each interval, and with ``curve`` intervals around the best."""
        check_trials(self.trials, self.seed)
        job = self.job()
        if self.step == 0:
            raise QuestionError("`step` is 0; write for example 12s")
        best_s = min(best_interval(job), job.work_s)
        wanted = [job.check_interval(one) for one in self.interval] or [best_s]
        intervals = [job.check_interval(self._whole_steps(one)) for one in wanted]

        strikes = partial(self.job_faults.strikes, job) if self.job_faults else None

        def lived(interval_s: float) -> Goodput:
            goodput = study(job, interval_s, trials=self.trials, seed=self.seed, strikes=strikes)
            on_interval(interval_s)
            return goodput

        return JobGoodputs(
            self, job, [lived(one) for one in intervals],
            [lived(one) for one in (around(job, best_s, curve) if curve else ())],
        )  # fmt: skip

    def _whole_steps(self, interval_s: float) -> float:
        return max(1, round(interval_s / self.step_s)) * self.step_s if self.step_s else interval_s

    def _check_complete(self) -> None:
        if self.faults is None and self._nodes is None:
            raise QuestionError("no node count; write `nodes` 128, or the name of a published training")
        if self.faults is None and self.mtbf is None and not self.failures:
            raise QuestionError(
                "no failure rate; write `failures` 6.5/1000node-days, `mtbf` 8h, or a file of `faults`"
            )
        if self.checkpoint is None:
            raise QuestionError("no checkpoint duration; write for example `checkpoint` 30s")

    @property
    def gpus_a_node(self) -> int:
        """The GPUs of each node."""
        gpus = self.model_step.gpus_per_node if self.model_step else self.gpus_per_node
        if gpus is None:
            gpus = self.known.gpus_per_node if self.known else GPUS_PER_NODE
        if not 1 <= gpus <= 1024:
            raise QuestionError(f"`gpus_per_node` {gpus}; write 1 to 1024")
        return gpus

    def _causes(self, job: LongJob) -> tuple[Cause, ...]:
        gpus = self.gpus_a_node
        if self.mtbf is not None and self.failures:
            raise QuestionError("`mtbf` and `failures` both set the failure rate; remove one of them")
        if self.mtbf is not None:
            return causes_of_mtbf(self.mtbf, job.nodes)
        return parse_causes(self.failures, job.nodes, gpus) if self.failures else job.causes


def _given(**seconds: float | None) -> dict[str, float]:
    return {name: value for name, value in seconds.items() if value is not None}


@dataclass(frozen=True)
class ModelStep:
    """A predicted step: its seconds, nodes and tokens (None if unknown), and what ``ringside train`` says."""

    step_s: float
    nodes: int
    gpus_per_node: int
    tokens: int | None
    says: str


@dataclass(frozen=True)
class JobGoodputs(AnswerOnDemand):
    """The answer: ``goodputs`` by interval, and ``curve`` at intervals around the best."""

    question: JobGoodput
    job: LongJob
    goodputs: Sequence[Goodput]
    curve: Sequence[Goodput] = ()

    @property
    def headline(self) -> str:
        """The simulated goodput with the first interval, and the time of the whole work."""
        one, job = self.goodputs[0], self.job
        best = f"; best every {format_span(self.best_interval_s)}" if job.rate else ""
        return (
            f"{one.simulated:.1%} goodput with a checkpoint every {format_span(one.interval_s)}: "
            f"{format_span(job.work_s)} of work take {format_span(one.wall_s)}{best}"
        )

    @property
    def grounds(self) -> str:
        """The failures, and where they come from."""
        known, job = self.question.known, self.job
        fails = f"a failure every {format_span(job.mtbf_s)}" if job.rate else "no failures"
        source = f"; source: {known.source}" if known else ""
        return f"{format_count(job.nodes, 'node')}, {job.spares} spare, {fails}{source}"

    @property
    def doubts(self) -> list[str]:
        """What is assumed, and where formula and simulation differ."""
        known, step = self.question.known, self.question.model_step
        return [
            *([f"assumed: {known.assumed}"] if known and known.assumed else []),
            *([f"the step as ringside train predicts it: {step.says}"] if step else []),
            *self.notes,
        ]

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.inputs()

    @property
    def best_interval_s(self) -> float:
        """The best interval, at most the whole work."""
        return min(best_interval(self.job), self.job.work_s)

    @property
    def notes(self) -> list[str]:
        """Differences between the formula and the simulation."""
        job = self.job
        lost = sum(cause.per_node_s for cause in job.causes if cause.loses_node) * job.nodes
        if not lost:
            return []
        together = " and that faults come one by one, but these come together"
        return [
            f"a node is lost every {format_span(1 / lost)} and repaired after "
            f"{format_span(job.restart.repair_s)}; the formula assumes that no node is missing"
            + together
            * (self.question.job_faults is not None)
        ]

    @property
    def costs(self) -> list[Cost]:
        """What the job costs with each interval; none where neither tokens nor a price are given."""
        if self.question.tokens is None and self.question.price is None:
            return []
        gpus = (self.job.nodes + self.job.spares) * self.question.gpus_a_node
        return [
            Cost(wall_s=one.wall_s, gpus=gpus, price=self.question.price, steps=self.question.steps)
            for one in self.goodputs
        ]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each interval: shares of all time, seconds, costs."""
        rows = [asdict(one) for one in self.goodputs]
        for row, cost in zip(rows, self.costs, strict=False):
            row["cost"] = cost.content()
        return rows


def facts(job: LongJob) -> dict[str, Any]:
    """Return a job's parameters for JSON; its failure times are None without failures."""
    calm = math.isinf(job.mtbf_s)
    write = job.checkpoints.write_s
    return {
        **{"nodes": job.nodes, "spares": job.spares, "replica_nodes": job.replica_nodes},
        **{"work_s": job.work_s, "mtbf_s": None if calm else job.mtbf_s, "restart_s": job.restart_s},
        **{"checkpoint": asdict(job.checkpoints), "restart": asdict(job.restart)},
        "causes": [
            {**asdict(cause), "per_1000_node_days": cause.per_node_s * DAY_S * 1000} for cause in job.causes
        ],
        "best_interval_s": None if calm else best_interval(job),
        "young_s": None if calm else young(write, job.mtbf_s),
        "daly_s": None if calm else daly(write, job.mtbf_s),
    }
