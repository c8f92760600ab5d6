"""Fields of a question that also says what a training costs."""

from dataclasses import dataclass

from ringside.sim.questions.question import Question, QuestionError, option
from ringside.topologies.units import parse_amount

MOST_DOLLARS = 1e6


@dataclass(frozen=True, kw_only=True)
class PricedQuestion(Question):
    """The amount to train on, and the price in dollars of a GPU for an hour."""

    tokens: float | None = option(
        "Tokens to train on, for days and GPU-hours: 15T, 300B, 1e12.",
        metavar="TOKENS", default=None, parse=parse_amount,
    )  # fmt: skip
    price: float | None = option("Dollars per GPU-hour: 2.5.", metavar="DOLLARS", default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.price is not None and not 0 < self.price <= MOST_DOLLARS:
            raise QuestionError(f"`price` {self.price:g}; write dollars per GPU-hour above 0, such as 2.5")
        if self.tokens is not None and not 1 <= self.tokens <= 1e18:
            raise QuestionError(f"`tokens` {self.tokens:g}; write 1 to 1e18, such as 15T")
