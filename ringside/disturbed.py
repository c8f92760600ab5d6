"""Disturbed answers: their options, the Monte Carlo draws, their description."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ringside import console
from ringside.sim.disturbance import (
    Disturbance,
    Draw,
    Drawn,
    Empirical,
    Jitter,
    Lognormal,
    OsNoise,
    Outcome,
    SlowLink,
)
from ringside.sim.disturbance import study as draw_all
from ringside.sim.disturbance.waiting import waits
from ringside.sim.program.simulate import Simulation
from ringside.sim.program.timeline import ProgramTimeline, timeline
from ringside.topologies.disk import write_file
from ringside.topologies.units import format_duration, parse_duration

DRAWS = 100
"""The default number of draws."""

QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}

MOST_BLAMED = 5
"""Ranks in a table; JSON has them all."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class DisturbanceWords:
    """The options of the command line; None is not given."""

    straggler: Sequence[str] | None = None
    slow_link: Sequence[str] | None = None
    jitter: str | None = None
    os_noise: str | None = None
    late: Sequence[str] | None = None
    draws: int | None = None
    seed: int | None = None

    def meant(self) -> Disturbance | None:
        """Return the disturbance; None where no option is given."""
        disturbance = Disturbance(
            slow_ranks=slow_ranks(self.straggler or ()),
            slow_links=tuple(map(_slow_link, self.slow_link or ())),
            jitter=_jitter(self.jitter) if self.jitter else None,
            noise=_noise(self.os_noise) if self.os_noise else None,
            late=_by_rank(self.late or (), "late rank", "3=20us", "--late", parse_duration),
        )
        for option, value in (("--draws", self.draws), ("--seed", self.seed)):
            if value is not None and not disturbance.is_random:
                raise ValueError(
                    f"{option} {value}: nothing is random; add --jitter lognormal:0.1 or "
                    "--os-noise 1ms=25us, or leave it out"
                )
        return None if disturbance == Disturbance() else disturbance

    def said(self) -> str:
        """Return the options as they were written."""
        many = {"straggler": self.straggler, "slow-link": self.slow_link, "late": self.late}
        options = [f"--{name} {one}" for name, values in many.items() for one in values or ()]
        options += [f"--jitter {self.jitter}"] if self.jitter else []
        return ", ".join([*options, *([f"--os-noise {self.os_noise}"] if self.os_noise else [])])


@dataclass(frozen=True, slots=True)
class Disturbed:
    """A disturbed answer: ``drawn`` are all draws, ``typical`` is the one nearest the median."""

    words: DisturbanceWords
    drawn: Drawn
    typical: ProgramTimeline | None = None

    def content(self) -> dict[str, Any]:
        """Return the content for JSON."""
        drawn = self.drawn
        return {
            "said": self.words.said(),
            "draws": len(drawn.times_s),
            "seed": drawn.seed,
            "undisturbed_s": drawn.undisturbed_s,
            "mean_s": drawn.mean_s,
            **{f"{name}_s": drawn.quantile(share) for name, share in QUANTILES.items()},
            "waits": [
                {"rank": rank, "for_rank": culprit, "seconds": seconds}
                for (rank, culprit), seconds in drawn.waits.items()
            ],
        }

    def lines(self) -> list[str]:
        """Return the comment lines of a table."""
        drawn = self.drawn
        many = len(drawn.times_s) > 1
        of = f"{len(drawn.times_s)} draws of seed {drawn.seed}" if many else "nothing random"
        times = ", ".join(
            f"{name} {format_duration(drawn.quantile(share), 4)}" for name, share in QUANTILES.items()
        )
        first = f"disturbed ({self.words.said()}; {of}): "
        first += times if many else format_duration(drawn.median_s, 4)
        if drawn.undisturbed_s:
            first += (
                f"; the median is {drawn.median_s / drawn.undisturbed_s:.4g} times the undisturbed "
                f"{format_duration(drawn.undisturbed_s, 4)}"
            )
        return [first, *self.blame()]

    def columns(self) -> dict[str, float]:
        """Return the columns beside the undisturbed time, seconds: the one time, or its quantiles."""
        drawn = self.drawn
        if len(drawn.times_s) == 1:
            return {"disturbed": drawn.median_s}
        return {name: drawn.quantile(share) for name, share in QUANTILES.items()}

    def headline(self, what: str) -> str:
        """Return the time in a sentence."""
        drawn = self.drawn
        sentence = f"With {self.words.said()} {what} takes {format_duration(drawn.median_s, 4)}"
        if len(drawn.times_s) > 1:
            late = format_duration(drawn.quantile(QUANTILES["p95"]), 4)
            sentence += f" in the median of {len(drawn.times_s)} draws, {late} at the 95th percentile"
        return f"{sentence}; undisturbed {format_duration(drawn.undisturbed_s, 4)}."

    def blame(self) -> list[str]:
        """Describe who waits for whom."""
        lines = []
        for culprit, seconds in list(self.drawn.blamed.items())[:MOST_BLAMED]:
            waiting = [rank for (rank, other) in self.drawn.waits if other == culprit]
            most = max(self.drawn.waits[rank, culprit] for rank in waiting)
            who = f"rank {waiting[0]} waits" if len(waiting) == 1 else f"{len(waiting)} ranks wait"
            lines.append(
                f"{who} for rank {culprit}, {format_duration(most, 3)} at most and "
                f"{format_duration(seconds / len(waiting), 3)} on average"
            )
        return lines

    def write(self, title: str, plot: Path | None, trace: Path | None = None) -> None:
        """Draw the times of all draws, and the waits of the typical one; write that one's trace."""
        if plot:
            from ringside.pictures.jobs.disturbance import draw_disturbed

            draw_disturbed(title, self.drawn, QUANTILES, self.blame(), self.typical, plot)
        if trace and self.typical:
            write_file(trace, self.typical.dumps())


def drawn(
    words: DisturbanceWords, disturbance: Disturbance, once: Callable[[Draw], Outcome], undisturbed_s: float
) -> Disturbed:
    """Play the draws of a question; ``once`` plays one."""
    draws = DRAWS if words.draws is None else words.draws
    with console.simulating("drawing", draws if disturbance.is_random else 1) as bar:
        result = draw_all(
            disturbance, once, undisturbed_s, draws=draws, seed=words.seed or 0,
            on_draw=lambda: bar.done("drawn"),
        )  # fmt: skip
    return Disturbed(words, result)


def drawn_program(
    words: DisturbanceWords,
    disturbance: Disturbance,
    play: Callable[[Draw], Simulation],
    undisturbed_s: float,
) -> Disturbed:
    """Play the draws of a program, and keep the timeline of the typical one."""

    def once(draw: Draw) -> Outcome:
        simulation = play(draw)
        return Outcome(simulation.makespan_s, waits(simulation))

    draws = drawn(words, disturbance, once, undisturbed_s).drawn
    typical = play(Draw(disturbance, draws.seed, draws.typical))
    return Disturbed(words, draws, timeline(typical))


def slow_ranks(texts: Sequence[str]) -> Mapping[int, float]:
    """Parse the factors of ``3=1.5`` texts, by rank."""
    return _by_rank(texts, "straggler", "3=1.5", "--straggler", float)


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
            raise ValueError(f"{text!r} is not a {what}; write {kind}, for example {example}") from None
        if number in values:
            raise ValueError(f"rank {number} is a {what} twice; write {option} {text} alone")
        values[number] = own
    return values


def _slow_link(text: str) -> SlowLink:
    """Parse the link of ``gpu0-switch=4``, or of ``gpu0->switch=4``, one direction only."""
    ends, _, factor = text.rpartition("=")
    both = "->" not in ends
    a, _, b = ends.partition("-" if both else "->")
    try:
        slower = float(factor)
    except ValueError:
        slower = 0.0
    if not (a.strip() and b.strip() and slower):
        raise ValueError(
            f"{text!r} is not a slow link; write A-B=FACTOR with two ends that a cable joins, for example "
            "gpu0-switch=4, or A->B=FACTOR for one direction"
        )
    return SlowLink(a.strip(), b.strip(), slower, both)


def _jitter(text: str) -> Jitter:
    """Parse the jitter of ``lognormal:SIGMA``, or of a file of measured steps."""
    kind, colon, sigma = text.partition(":")
    if kind == "lognormal":
        try:
            return Lognormal(float(sigma))
        except ValueError as error:
            if colon and str(error).startswith("a lognormal"):
                raise
            raise ValueError(f"{text!r} is not a jitter; write lognormal:SIGMA, for example 0.1") from None
    if Path(text).suffix not in (".json", ".jsonl") and not Path(text).is_file():
        raise ValueError(
            f"{text!r} is not a jitter; write lognormal:SIGMA, for example lognormal:0.1, or a file of "
            "measured steps (ringside measure ddp -o)"
        )
    return Empirical(factors_of(Path(text)), text)


def factors_of(path: Path) -> tuple[float, ...]:
    """Return the factors of measured passes: each rank's, over its own median."""
    from ringside.sim.training.ddp.record import read

    return read(path).jitter()


def _noise(text: str) -> OsNoise:
    period, equals, taken = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not a noise; write PERIOD=DURATION, for example 1ms=25us")
    return OsNoise(parse_duration(period), parse_duration(taken))
