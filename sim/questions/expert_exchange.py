"""How long the exchange of experts' tokens takes on a cluster, by each library that does it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ringside.sim.libraries.experts.exchange import (
    ExchangeTime,
    TimeBand,
    check_mechanism,
    exchange_time,
    refusal,
)
from ringside.sim.libraries.experts.measured import CALLERS
from ringside.sim.libraries.experts.mechanisms import MECHANISMS, NAMES, OWN
from ringside.sim.libraries.experts.ports import ports_of
from ringside.sim.libraries.experts.tokens import ROUTINGS, TOKEN_BYTES, ExpertTokens
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.fields import OnCluster
from ringside.sim.questions.question import QuestionError, choices, option
from ringside.topologies.names import one_of
from ringside.topologies.placement import placement_notes
from ringside.topologies.units import format_duration

ALL = "all"

BANDS = ("prepare", "dispatch", "combine", "total")
"""The phases of an answer, and their sum."""


def _by(text: str) -> str:
    return text if text == ALL else check_mechanism(text)


def _caller(text: str) -> str:
    if text not in CALLERS:
        raise ValueError(f"unknown caller {text!r}; write {one_of(CALLERS, text)}")
    return text


def _tokens(text: str) -> tuple[int, ...]:
    if not all(one.strip().isdecimal() for one in text.split(",")):
        raise ValueError(f"{text!r} are not numbers of tokens; write for example 128 or 1,128,4096")
    return tuple(map(int, text.split(",")))


@dataclass(frozen=True, kw_only=True)
class ExpertExchange(OnCluster):
    """How long dispatch and combine of experts' tokens take, and which library is the fastest."""

    schema: ClassVar[str] = "experts"

    tokens: tuple[int, ...] = option(
        "Tokens of a rank; several with commas.",
        metavar="N,...", default="128", parse=_tokens, minimum=1,
    )  # fmt: skip
    hidden: int = option("Elements of a token.", default=7168, minimum=1)
    topk: int = option("Experts of a token.", default=8, minimum=1)
    experts: int = option("Experts of all ranks together.", default=256, minimum=1)
    by: str = option("Which library exchanges them.", metavar=choices((ALL, *NAMES)), default=ALL, parse=_by)
    dispatch_dtype: str = option(
        "Type of dispatched tokens, with its scales.", metavar=choices(TOKEN_BYTES), default="fp8"
    )
    combine_dtype: str = option("Type of returned results.", metavar=choices(TOKEN_BYTES), default="bf16")
    routing: str = option(
        "Experts of a token: drawn at random, or on as many ranks as possible.",
        metavar=choices(ROUTINGS), default="random",
    )  # fmt: skip
    groups: int | None = option(
        "Groups of neighbouring experts.", default=None, default_text="one a machine", minimum=1
    )
    topk_groups: int = option("Groups that a token's experts are in, at most.", default=4, minimum=1)
    imbalance: float = option("Tokens of the busiest rank over the mean.", default=1.0, minimum=1)
    sms: int = option("Thread blocks of deepep; others choose their own.", default=20, minimum=2)
    caller: str = option(
        "What times include: kernels alone, or a framework's call.",
        metavar=choices(CALLERS), default=CALLERS[0], parse=_caller,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self._exchanges()

    def _exchanges(self) -> list[ExpertTokens]:
        """Return an exchange for each number of tokens."""
        try:
            return [
                ExpertTokens(
                    tokens=tokens, hidden=self.hidden, topk=self.topk, experts=self.experts,
                    dispatch_dtype=self.dispatch_dtype, combine_dtype=self.combine_dtype,
                    routing=self.routing, groups=self.groups, topk_groups=self.topk_groups,
                    imbalance=self.imbalance, sms=self.sms,
                )
                for tokens in self.tokens
            ]  # fmt: skip
        except ValueError as error:
            raise QuestionError(str(error)) from None

    def ask(self) -> "ExpertExchanges":
        """Time every exchange by every library."""
        library = find_library(
            "nccl", self.cluster, self.settings, ranks=self.ranks, options=Options(placement=self.placement)
        )
        ports = ports_of(library)
        names = NAMES if self.by == ALL else (self.by,)
        refused = {name: refusal(name, ports, self.caller) for name in names}
        for name in names if self.by == ALL else ():
            if not refused[name] and name in MECHANISMS and not MECHANISMS[name].usual(ports):
                refused[name] = "its library uses it on Arm hosts only; name it by `by` to predict it"
        if all(refused.values()):
            raise QuestionError(
                "; ".join(f"{name}: {reason}" for name, reason in refused.items()) + "; write another `by`"
            )
        times = [
            (exchange, [exchange_time(library, exchange, name, self.caller)
                        for name in names if not refused[name]])
            for exchange in self._exchanges()
        ]  # fmt: skip
        notes = [*placement_notes(self.ranks, self.placement, library.placed), *_notes(names, refused)]
        if not refused.get(OWN, "nothing"):
            notes.append(f"nccl {library.basis}; without the copies that order tokens by expert")
        return ExpertExchanges(self, times, refused, notes)


def _notes(names: Sequence[str], refused: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        if refused[name]:
            yield f"not {name}: {refused[name]}"


@dataclass(frozen=True, slots=True)
class ExpertExchanges(AnswerOnDemand):
    """The answer: for each number of tokens the time of every library that runs there."""

    question: ExpertExchange
    times: Sequence[tuple[ExpertTokens, Sequence[ExchangeTime]]]
    refused: Mapping[str, str]
    notes: Sequence[str]

    @property
    def headline(self) -> str:
        """The fastest library for the fewest and the most tokens."""
        ends = list({exchange.tokens: pair for pair in self.times for exchange in pair[:1]}.values())
        sentences = []
        for exchange, several in [ends[0], *ends[1:][-1:]]:
            best, *others = sorted(several, key=lambda one: one.total.time_s)
            text = f"{format_duration(best.total.time_s, 3)} for {exchange.tokens} tokens by {best.by}"
            if others:
                text += f" ({others[0].by} {others[0].total.time_s / best.total.time_s - 1:.0%} longer)"
            sentences.append(text)
        return "; ".join(sentences)

    @property
    def grounds(self) -> str:
        """The size of the exchange, and what the times rest on."""
        question = self.question
        return (
            f"{question.cluster}; kernels fitted to published measurements, ringside scorecard experts "
            "judges them; 80 % of times lie between the ends"
        )

    @property
    def doubts(self) -> list[str]:
        """The libraries that do not run there."""
        return [f"not {name}: {reason}" for name, reason in self.refused.items() if reason]

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.inputs()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each number of tokens and library; ``wins`` for the least total."""
        return [
            _row(exchange, one, one.total.time_s == min(other.total.time_s for other in several))
            for exchange, several in self.times
            for one in several
        ]


def _row(exchange: ExpertTokens, one: ExchangeTime, wins: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"tokens": exchange.tokens, "by": one.by}
    for name in BANDS:
        band: TimeBand = getattr(one, name)
        row |= {f"{name}_s": band.time_s, f"{name}_lo_s": band.low_s, f"{name}_hi_s": band.high_s}
    return row | {"nvlink_bytes": one.inside_bytes, "network_bytes": one.across_bytes, "wins": wins}
