"""Fields that disturb a question: slow ranks and links, jitter, noise, late ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ringside.sim.disturbance import Disturbance, Empirical, Jitter, Lognormal, OsNoise, SlowLink
from ringside.sim.questions.question import Question, option
from ringside.topologies.units import parse_duration

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Disturbances(Question):
    """What disturbs the answer; None is no such disturbance.

    ``disturbance`` is all of it, and ``disturbed_by`` the options as they were written; empty without any.
    """

    straggler: Sequence[str] = option(
        "A rank that is slower; repeat for more.",
        metavar="RANK=FACTOR",
        default=(),
        parse=tuple,
        repeats=True,
    )
    slow_link: Sequence[str] = option(
        "A link with less bandwidth by a factor: gpu0-switch=4.",
        metavar="A-B=FACTOR", default=(), parse=tuple, repeats=True,
    )  # fmt: skip
    jitter: str | None = option(
        "How much work differs each time, or steps that do.", metavar="lognormal:SIGMA|FILE", default=None
    )
    os_noise: str | None = option("OS noise per core: 1ms=25us.", metavar="PERIOD=DURATION", default=None)
    late: Sequence[str] = option(
        "A rank that begins later than the others.",
        metavar="RANK=DURATION", default=(), parse=tuple, repeats=True,
    )  # fmt: skip
    draws: int | None = option("Monte Carlo draws.", default=None, default_text="100")
    seed: int | None = option("Seed of the draws.", default=None, default_text="0")
    disturbance: Disturbance | None = field(init=False, repr=False, compare=False)
    disturbed_by: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "disturbed_by", self._as_written())
        object.__setattr__(self, "disturbance", self._parsed() if self.disturbed_by else None)
        for flag, value in (("--draws", self.draws), ("--seed", self.seed)):
            if value is not None and not (self.disturbance and self.disturbance.is_random):
                raise ValueError(
                    f"{flag} {value}: nothing is left to chance; add --jitter lognormal:0.1 or "
                    "--os-noise 1ms=25us, or leave it out"
                )

    def _parsed(self) -> Disturbance:
        return Disturbance(
            slow_ranks=parse_stragglers(self.straggler),
            slow_links=tuple(map(_slow_link, self.slow_link)),
            jitter=_jitter(self.jitter) if self.jitter else None,
            noise=_noise(self.os_noise) if self.os_noise else None,
            late=_by_rank(self.late, "late rank", "3=20us", "--late", parse_duration),
        )

    def _as_written(self) -> str:
        lists = {"straggler": self.straggler, "slow-link": self.slow_link, "late": self.late}
        options = [f"--{name} {one}" for name, values in lists.items() for one in values]
        options += [f"--jitter {self.jitter}"] if self.jitter else []
        return ", ".join([*options, *([f"--os-noise {self.os_noise}"] if self.os_noise else [])])


def parse_stragglers(texts: Sequence[str]) -> dict[int, float]:
    """Return the factors of ``3=1.5`` texts, by rank."""
    return _by_rank(texts, "straggler", "3=1.5", "--straggler", float)


def _by_rank(
    texts: Sequence[str], what: str, example: str, option: str, value_of: Callable[[str], Value]
) -> dict[int, Value]:
    found: dict[int, Value] = {}
    kind = "RANK=FACTOR" if value_of is float else "RANK=DURATION"
    for text in texts:
        rank, _, value = text.partition("=")
        try:
            number, own = int(rank), value_of(value)
        except ValueError:
            raise ValueError(f"{text!r} is no {what}; write {kind}, for example {example}") from None
        if number in found:
            raise ValueError(f"rank {number} is a {what} twice; write {option} {text} alone")
        found[number] = own
    return found


def _slow_link(text: str) -> SlowLink:
    """The link of ``gpu0-switch=4``, or of ``gpu0->switch=4``, one direction alone."""
    ends, _, factor = text.rpartition("=")
    both = "->" not in ends
    a, _, b = ends.partition("-" if both else "->")
    try:
        slower = float(factor)
    except ValueError:
        slower = 0.0
    if not (a.strip() and b.strip() and slower):
        raise ValueError(
            f"{text!r} is no slow link; write A-B=FACTOR with two ends that a cable joins, for example "
            "gpu0-switch=4, or A->B=FACTOR for one direction"
        )
    return SlowLink(a.strip(), b.strip(), slower, both)


def _jitter(text: str) -> Jitter:
    """The jitter of ``lognormal:SIGMA``, or of a file of measured steps."""
    kind, colon, sigma = text.partition(":")
    if kind == "lognormal":
        try:
            return Lognormal(float(sigma))
        except ValueError as error:
            if colon and str(error).startswith("a lognormal"):
                raise
            raise ValueError(f"{text!r} is no jitter; write lognormal:SIGMA, for example 0.1") from None
    if Path(text).suffix not in (".json", ".jsonl") and not Path(text).is_file():
        raise ValueError(
            f"{text!r} is no jitter; write lognormal:SIGMA, for example lognormal:0.1, or a file of measured "
            "steps (ringside measure ddp -o)"
        )
    return Empirical(factors_of(Path(text)), text)


def factors_of(path: Path) -> tuple[float, ...]:
    """By what factors the passes of measured steps differ: each rank's, over the median of its own."""
    from ringside.sim.training.ddp.record import read

    return read(path).jitter()


def _noise(text: str) -> OsNoise:
    period, equals, taken = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is no noise; write PERIOD=DURATION, for example 1ms=25us")
    return OsNoise(parse_duration(period), parse_duration(taken))
