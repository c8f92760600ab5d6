"""Disturbed answers: their options, the Monte Carlo draws, their description."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside import console
from ringside.sim.disturbance import Disturbance, Draw, Drawn, Outcome
from ringside.sim.disturbance import study as draw_all
from ringside.sim.program.simulate import Simulation
from ringside.sim.program.timeline import ProgramTimeline, timeline, waits
from ringside.sim.questions.disturbances import Disturbances
from ringside.topologies.disk import write_file
from ringside.topologies.units import format_duration

DRAWS = 100
"""The default number of draws."""

QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}

MOST_BLAMED = 5
"""The maximum of ranks in a table; JSON has them all."""


@dataclass(frozen=True, slots=True)
class Disturbed:
    """A disturbed answer: ``drawn`` are all draws, ``typical`` is the one nearest the median."""

    question: Disturbances
    drawn: Drawn
    typical: ProgramTimeline | None = None

    def content(self) -> dict[str, Any]:
        """Return the content for JSON."""
        drawn = self.drawn
        return {
            "said": self.question.disturbed_by,
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
        first = f"disturbed ({self.question.disturbed_by}; {of}): "
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
        sentence = f"With {self.question.disturbed_by} {what} takes {format_duration(drawn.median_s, 4)}"
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
    question: Disturbances, disturbance: Disturbance, once: Callable[[Draw], Outcome], undisturbed_s: float
) -> Disturbed:
    """Play the draws of a question; ``once`` plays one."""
    draws = DRAWS if question.draws is None else question.draws
    with console.simulating("drawing", draws if disturbance.is_random else 1) as bar:
        played = draw_all(
            disturbance, once, undisturbed_s, draws=draws, seed=question.seed or 0,
            on_draw=lambda: bar.done("drawn"),
        )  # fmt: skip
    return Disturbed(question, played)


def drawn_program(
    question: Disturbances,
    disturbance: Disturbance,
    play: Callable[[Draw], Simulation],
    undisturbed_s: float,
) -> Disturbed:
    """Play the draws of a program, and keep the timeline of the typical one."""

    def once(draw: Draw) -> Outcome:
        simulation = play(draw)
        return Outcome(simulation.makespan_s, waits(simulation))

    played = drawn(question, disturbance, once, undisturbed_s).drawn
    typical = play(Draw(disturbance, played.seed, played.typical))
    return Disturbed(question, played, timeline(typical))
