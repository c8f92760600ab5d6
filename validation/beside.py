"""A recorded job beside one of Ringside's own strategies: exchanges, memory, and the step at equal prices."""

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

from ringside.sim.compute.kernels import Flash, Gemm
from ringside.sim.compute.prices import Prices
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import QuestionError, from_text, options_of
from ringside.sim.recorded.beside import Exchanged, SideBySide, side_by_side
from ringside.sim.recorded.file import read_job
from ringside.sim.recorded.job import Operator, RecordedJob, RecordedRank
from ringside.sim.recorded.kernels import products
from ringside.sim.recorded.memory import use_of
from ringside.sim.recorded.program import Playing
from ringside.sim.recorded.step import RecordedStep, RecordedTraining
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.memory.peak import use
from ringside.sim.training.parallel import ParallelTraining, simulate_parallel
from ringside.sim.training.program import Writing
from ringside.sim.training.step import ParallelStep
from ringside.sim.training.tensor.decoder import DecoderOnGpu
from ringside.topologies.names import one_of
from ringside.topologies.units import format_size
from ringside.validation.questions.step_time import StepTime

POOLS = {
    "gathered parameters": "gathered", "gather buffers": "gathered", "float32 copies": "parameters",
    "unreduced gradients": "gradients", "reduce buffers": "gradients", "buckets": "gradients",
    "messages": "activations",
}  # fmt: skip
"""A recording's pool for those of a strategy that go by another name."""


@dataclass(frozen=True, slots=True)
class RankBeside:
    """A recorded rank and the strategy's: their exchanges, and bytes by pool at the peak of each."""

    rank: int
    alike: int
    exchanges: SideBySide
    memory: Mapping[str, tuple[int, int]]

    @property
    def peaks(self) -> tuple[int, int]:
        """Bytes at the peak of each."""
        return sum(one for one, _ in self.memory.values()), sum(one for _, one in self.memory.values())


@dataclass(frozen=True)
class Beside(AnswerOnDemand):
    """A recorded job beside a training under a strategy, on as many ranks."""

    job: RecordedJob
    question: StepTime

    def __post_init__(self) -> None:
        if self.question.recorded is not None:
            raise QuestionError(
                f"`model` {self.question.model} is a recorded job too; write a model, for example llama3-8b"
            )

    @cached_property
    def ranks(self) -> list[RankBeside]:
        """Each recorded rank."""
        playing, writing = Playing(self.job), Writing(self.question.job)
        made = []
        for one in self.job.recorded:
            own = writing.step(one.rank)
            exchanges = side_by_side(playing.operations(one.rank), own.rank.operations, one.rank)
            script = _peak_of(one)
            strategy = _renamed(use(own.held, own.rank.operations).peak.by_pool)
            memory = {pool: (script[pool], strategy[pool]) for pool in {**script, **strategy}}
            made.append(RankBeside(one.rank, len(one.alike), exchanges, memory))
        return made

    @property
    def headline(self) -> str:
        """How many collectives and messages are the same, and in the same order."""
        strategy, ranks = self.question.strategy, self.ranks
        first, second = (sum(totals) for totals in zip(*(one.exchanges.totals for one in ranks), strict=True))
        common = sum(one.exchanges.common for one in ranks)
        ordered = sum(one.exchanges.in_order for one in ranks)
        text = f"the same {first:,} collectives and messages as {strategy}"
        if any(one.exchanges.different for one in ranks):
            text = (
                f"{common:,} of {first:,} collectives and messages are those of {strategy}, which has "
                f"{second:,}"
            )
        if common:
            text += ", in the same order" if ordered == common else f"; {ordered:,} of them in the same order"
        return text

    @property
    def inputs(self) -> dict[str, Any]:
        """The strategy's question."""
        return self.question.inputs()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each recorded rank."""
        return [_plain(one) for one in self.ranks]

    @property
    def doubts(self) -> list[str]:
        """Where exchanges first differ, and what was assumed."""
        return self.notes

    @property
    def notes(self) -> list[str]:
        """Where a rank's exchanges first differ from the strategy's, and what was assumed."""
        sentences = []
        for one in self.ranks:
            if one.exchanges.parting:
                place, recorded, own = one.exchanges.parting
                sentences.append(
                    f"rank {one.rank} parts from {self.question.strategy} at exchange {place + 1}: "
                    f"{_text(recorded)}, not {_text(own)}"
                )
        return [*sentences, *self.job.notes]

    @property
    def content(self) -> dict[str, Any]:
        """The answer in plain values."""
        steps = self.steps
        return {
            "inputs": self.question.inputs(),
            "ranks": [_plain(one) for one in self.ranks],
            "steps": steps and {
                "step_s": _sides(steps[0].step_s, steps[1].step_s),
                "exposed_s": _sides(steps[0].exposed_s, steps[1].exposed_s),
            },
        }  # fmt: skip

    @cached_property
    def steps(self) -> tuple[RecordedStep, ParallelStep] | None:
        """Both steps at equal prices: of products and attention alone, all else takes no time.

        None for models other than decoders.
        """
        if not isinstance(self.question.model_on_gpu, DecoderOnGpu):
            return None
        eager = replace(self.question, stack="eager")  # as operators are recorded
        model, libraries = eager.model_on_gpu, eager.libraries
        assert isinstance(model, DecoderOnGpu)
        own = model.computing.prices
        prices = replace(own, launch_s=0.0, roofline=replace(own.roofline, bytes_per_s=inf))
        computing = replace(model.computing, prices=prices, overhead=1.0)
        training = replace(eager.training.training, model=replace(model, computing=computing))
        job = ParallelTraining(training, libraries).job(eager.job.layout)
        job = replace(job, costs=Costs(memory_bandwidth=inf))
        recorded = RecordedTraining(self.job, libraries, lambda operator: products_s(operator, prices))
        return recorded.step(), simulate_parallel(job, libraries)


def beside(job: RecordedJob | str | Path, model: str, strategy: str, **options: Any) -> Beside:
    """Return a recorded job, or that of a file, beside ``model`` under a strategy.

    ``options`` are other fields of `StepTime`. By default the cluster is of DGX H100, as scripts see it.
    """
    if not isinstance(job, RecordedJob):
        job = read_job(job)
    usual: dict[str, Any] = {"cluster": f"dgx-h100:{-(-job.ranks // job.per_node)}", "ranks": job.ranks}
    return Beside(job, StepTime(model=model, strategy=strategy, **usual | options))


def beside_text(job: RecordedJob, model: str, text: str) -> Beside:
    """Return the same of ``fsdp batch=4 tp=2 sequence_parallel``: a strategy, and options of `StepTime`."""
    strategy, *settings = shlex.split(text) or [""]
    if not strategy:
        raise QuestionError("`beside` names no strategy; write for example 'fsdp batch=4'")
    names = [one.name for one in options_of(StepTime) if one.name not in ("model", "strategy", "ranks")]
    options = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.replace("-", "_")
        if name not in names:
            raise QuestionError(f"`beside` {text!r} has no option {name!r}; write {one_of(names, name)}")
        options[name] = from_text(StepTime, name, value if equals else "true")
    return beside(job, model, strategy, **options)


def products_s(operator: Operator, prices: Prices) -> float:
    """Return the seconds of an operator's products and attention."""
    return sum(prices.seconds(one) for one in products(operator) if isinstance(one, Gemm | Flash))


def _text(exchanged: Exchanged | None) -> str:
    if exchanged is None:
        return "none"
    return f"{exchanged.kind} of {format_size(exchanged.nbytes)} among {len(exchanged.ranks)} ranks"


def _sides(recorded: float, strategy: float) -> dict[str, float]:
    return {"recorded": recorded, "strategy": strategy}


def _plain(one: RankBeside) -> dict[str, Any]:
    exchanges = one.exchanges
    return {
        "rank": one.rank,
        "alike": one.alike,
        "common": exchanges.common,
        "in_order": exchanges.in_order,
        "exchanges": [
            {
                "kind": count.exchanged.kind, "ranks": list(count.exchanged.ranks),
                "bytes": count.exchanged.nbytes, **_sides(count.first, count.second),
                "places": list(count.places),
            }
            for count in exchanges.counts
        ],
        "memory_bytes": {pool: _sides(*sizes) for pool, sizes in one.memory.items()},
    }  # fmt: skip


def _peak_of(one: RecordedRank) -> Counter[str]:
    names = [""] * len(one.entries)
    return Counter(use_of(one, names, range(len(names))).peak.by_pool)


def _renamed(by_pool: Mapping[str, int]) -> Counter[str]:
    """Return a strategy's bytes by the recording's pools."""
    nbytes = Counter[str]()
    for name, own in by_pool.items():
        nbytes[POOLS.get(name, name)] += own
    return nbytes
