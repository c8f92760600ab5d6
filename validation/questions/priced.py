"""The time of a step in one sentence, and the cost of a training from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringside.sim.goodput.cost import Cost
from ringside.sim.questions.disturbed_time import DisturbedTime
from ringside.sim.questions.priced import PricedQuestion
from ringside.sim.questions.question import QuestionError, option
from ringside.sim.recorded.step import RecordedStep
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.memory.room import FITS, TIGHT, MemoryFit
from ringside.sim.training.step import ParallelStep
from ringside.sim.workload.decoder import Decoder
from ringside.topologies.units import format_amount, format_count, format_duration, parse_amount
from ringside.validation.questions.models import tokens_of

Step = TrainingStep | ParallelStep | RecordedStep


@dataclass(frozen=True, kw_only=True)
class PricedTraining(PricedQuestion):
    """The tokens or samples to train on, and the price of a GPU; `cost` is what that comes to."""

    samples: float | None = option(
        "Samples to train on, of models without tokens: 1.2B.",
        metavar="SAMPLES", default=None, parse=parse_amount, minimum=1, maximum=1e18,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples is not None and self.tokens is not None:
            raise QuestionError("`tokens` and `samples` both say how much to train on; remove one of them")
        if self.price is not None and self.samples is None and self.tokens is None:
            raise QuestionError("`price` needs an amount to train on; write `tokens` 15T, or `samples` 1.2B")

    def wanted_samples(self, model: str | Decoder) -> float | None:
        """Return the samples to train on; None if no amount is given.

        Raise QuestionError for tokens where the model's samples have none, or an unknown number.
        """
        if self.tokens is None:
            return self.samples
        each = tokens_of(model)
        if each is None:
            raise QuestionError(
                f"`tokens` {self.tokens:g}, but samples of {model} have no known number of tokens; write "
                "`samples`, for example `samples` 1.2B"
            )
        return self.tokens / each

    def cost(self, model: str | Decoder, step_s: float, samples: int | None, gpus: int) -> Cost | None:
        """Return the cost in steps of ``step_s`` seconds with that many samples; None if no amount is given.

        Nothing fails: `JobGoodput` adds failures.
        """
        wanted = self.wanted_samples(model)
        if wanted is None:
            return None
        if samples is None:
            raise QuestionError(
                f"the samples of a step of {model} are unknown; record it again with --samples, or leave "
                "the amount to train on out"
            )
        steps = math.ceil(wanted / samples * (1 - 1e-12))
        return Cost(wall_s=steps * step_s, gpus=gpus, price=self.price, steps=steps)


def cost_text(question: PricedTraining, cost: Cost) -> str:
    """Return what a training costs as a sentence."""
    amount, unit = (question.samples, "samples") if question.tokens is None else (question.tokens, "tokens")
    assert amount is not None
    return f"{format_amount(amount)} {unit}: {cost.steps:,} steps, {cost.text()}, if nothing fails"


def cost_figure(cost: Cost | None) -> dict[str, Any]:
    """Return a cost as an answer's figure; nothing where none is asked for."""
    return {} if cost is None else {"cost": cost.content()}


def headline_of(
    step: Step,
    what: str,
    where: str,
    *,
    band: float | None,
    mfu: float | None = None,
    fit: MemoryFit | None = None,
    disturbed: DisturbedTime | None = None,
) -> str:
    """Return the step's time and rates, what it exposes, and whether it fits into a GPU.

    ``what`` is done on the step's ranks of ``where``. Four of five steps lie within a factor ``band`` of the
    time, where that is known.
    """
    what = f"{what} on {format_count(step.ranks, 'rank')} of {where}"
    sentence = f"{format_duration(step.step_s, 4)} a step{_rates(step, mfu)}: {what}; {_exposed(step)}"
    if disturbed:
        sentence = disturbed.headline(f"a step of {what}").removesuffix(".")
    elif band is not None:
        low, high = (format_duration(one, 3) for one in (step.step_s / band, step.step_s * band))
        sentence += f"; 4 of 5 such steps lie in {low} to {high}"
    if fit is not None and fit.verdict != FITS:
        sentence += f"; {'tight in' if fit.verdict == TIGHT else 'DOES NOT FIT into'} a GPU"
    return sentence


def costing(question: PricedTraining, costs: Sequence[Cost | None]) -> str:
    """Return what the training costs, as the end of a sentence; nothing where no amount is given."""
    return "".join(f"; {cost_text(question, cost)}" for cost in costs[:1] if cost)


def _rates(step: Step, mfu: float | None) -> str:
    rates = []
    if step.throughput is not None:
        rates.append(f"{_short(step.throughput)} samples/s")
    if (tokens := getattr(step, "tokens_per_s", None)) is not None:
        rates.append(f"{_short(tokens)} tokens/s")
    if mfu is not None:
        rates.append(f"MFU {mfu:.1%}")
    return "".join(f", {rate}" for rate in rates)


def _exposed(step: Step) -> str:
    exposed = format_duration(step.exposed_s, 3)
    if isinstance(step, TrainingStep):
        return f"{step.overlap_efficiency:.0%} of communication hidden, {exposed} exposed"
    return f"{exposed} of communication exposed, {step.bubble_share:.1%} of the step waiting"


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
