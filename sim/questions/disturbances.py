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
    """Disturbances of the answer; None means no such disturbance.

    ``disturbance`` combines all of them; ``disturbed_by`` has the options as written, empty without any.
    """

    straggler: Sequence[str] = option(
        "A slower rank; repeat for more.",
        metavar="RANK=FACTOR",
        default=(),
        parse=tuple,
        repeats=True,
    )
    slow_link: Sequence[str] = option(
        "A link with FACTOR times less bandwidth: gpu0-switch=4.",
        metavar="A-B=FACTOR", default=(), parse=tuple, repeats=True,
    )  # fmt: skip
    jitter: str | None = option(
        "Random variation of work, or measured steps.",
        metavar="lognormal:SIGMA|FILE",
        default=None,
    )
    os_noise: str | None = option("OS noise per core: 1ms=25us.", metavar="PERIOD=DURATION", default=None)
    late: Sequence[str] = option(
        "A rank that starts later than the others.",
        metavar="RANK=DURATION", default=(), parse=tuple, repeats=True,
    )  # fmt: skip
    draws: int | None = option("Monte Carlo draws.", default=None, default_text="100")
    seed: int | None = option("Random seed.", default=None, default_text="0")
    disturbance: Disturbance | None = field(init=False, repr=False, compare=False)
    disturbed_by: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "disturbed_by", self._as_written())
        object.__setattr__(self, "disturbance", self._parsed() if self.disturbed_by else None)
        for name, value in (("draws", self.draws), ("seed", self.seed)):
            if value is not None and not (self.disturbance and self.disturbance.is_random):
                raise ValueError(
                    f"`{name}` {value}: nothing is random; add `jitter` lognormal:0.1 or "
                    "`os_noise` 1ms=25us, or remove it"
                )

    def _parsed(self) -> Disturbance:
        return Disturbance(
            slow_ranks=parse_stragglers(self.straggler),
            slow_links=tuple(map(_slow_link, self.slow_link)),
            jitter=_jitter(self.jitter) if self.jitter else None,
            noise=_noise(self.os_noise) if self.os_noise else None,
            late=_by_rank(self.late, "late rank", "3=20us", "`late`", parse_duration),
        )

    def _as_written(self) -> str:
        lists = {"straggler": self.straggler, "slow-link": self.slow_link, "late": self.late}
        options = [f"--{name} {one}" for name, values in lists.items() for one in values]
        options += [f"--jitter {self.jitter}"] if self.jitter else []
        return ", ".join([*options, *([f"--os-noise {self.os_noise}"] if self.os_noise else [])])


def parse_stragglers(texts: Sequence[str]) -> dict[int, float]:
    """Return the factors of ``3=1.5`` texts, by rank."""
    return _by_rank(texts, "straggler", "3=1.5", "`straggler`", float)


def _by_rank(
    texts: Sequence[str], what: str, example: str, option: str, value_of: Callable[[str], Value]
) -> dict[int, Value]:
    values: dict[int, Value] = {}
    kind = "RANK=FACTOR" if value_of is float else "RANK=DURATION"
    for text in texts:
        rank, _, value = text.partition("=")
        try:
            number, own = int(rank), value_of(value)
        except ValueError:
            raise ValueError(f"invalid {what} {text!r}; write {kind}, for example {example}") from None
        if number in values:
            raise ValueError(f"rank {number} is a {what} twice; write only {option} {text}")
        values[number] = own
    return values


def _slow_link(text: str) -> SlowLink:
    """Parse ``gpu0-switch=4``, or one direction: ``gpu0->switch=4``."""
    ends, _, factor = text.rpartition("=")
    both = "->" not in ends
    a, _, b = ends.partition("-" if both else "->")
    try:
        slower = float(factor)
    except ValueError:
        slower = 0.0
    if not (a.strip() and b.strip() and slower):
        raise ValueError(
            f"invalid slow link {text!r}; write A-B=FACTOR with the two ends of a cable, for example "
            "gpu0-switch=4, or A->B=FACTOR for one direction"
        )
    return SlowLink(a.strip(), b.strip(), slower, both)


def _jitter(text: str) -> Jitter:
    """Parse ``lognormal:SIGMA``, or read a file of measured steps."""
    kind, colon, sigma = text.partition(":")
    if kind == "lognormal":
        try:
            return Lognormal(float(sigma))
        except ValueError as error:
            if colon and str(error).startswith("a lognormal"):
                raise
            raise ValueError(f"invalid jitter {text!r}; write lognormal:SIGMA, for example 0.1") from None
    if Path(text).suffix not in (".json", ".jsonl") and not Path(text).is_file():
        raise ValueError(
            f"invalid jitter {text!r}; write lognormal:SIGMA, for example lognormal:0.1, or a file of "
            "measured steps (ringside measure ddp -o)"
        )
    return Empirical(factors_of(Path(text)), text)


def factors_of(path: Path) -> tuple[float, ...]:
    """Return the factors of measured passes relative to their rank's median."""
    from ringside.sim.training.ddp.step import read

    return read(path).jitter()


def _noise(text: str) -> OsNoise:
    period, equals, taken = text.partition("=")
    if not equals:
        raise ValueError(f"invalid OS noise {text!r}; write PERIOD=DURATION, for example 1ms=25us")
    return OsNoise(parse_duration(period), parse_duration(taken))
