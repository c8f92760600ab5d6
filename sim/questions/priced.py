"""Fields of a question that also prices a training."""

from dataclasses import dataclass

from ringside.sim.questions.question import Question, option
from ringside.topologies.units import parse_amount


def _parse_dollars(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a price; write dollars per GPU-hour, such as 2.5") from None


@dataclass(frozen=True, kw_only=True)
class PricedQuestion(Question):
    """The amount to train on, and the price in dollars of a GPU for an hour."""

    tokens: float | None = option(
        "Tokens to train on, for days and GPU-hours: 15T, 300B, 1e12.",
        metavar="TOKENS", default=None, parse=parse_amount, minimum=1, maximum=1e18,
    )  # fmt: skip
    price: float | None = option(
        "Dollars per GPU-hour: 2.5.",
        metavar="DOLLARS", default=None, parse=_parse_dollars, minimum=0.001, maximum=1e6,
    )  # fmt: skip
