"""The time of a disturbed answer: Monte Carlo draws, their quantiles, and who waits for whom."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringside.sim.disturbance import Draw, Drawn, Outcome
from ringside.sim.disturbance import study as play_draws
from ringside.sim.program.simulate import Simulation
from ringside.sim.program.timeline import ProgramTimeline, timeline, waits
from ringside.sim.questions.disturbances import Disturbances
from ringside.topologies.units import format_duration

DRAWS = 100
"""The default number of draws."""

QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}

MOST_BLAMED = 5
"""Maximum number of ranks in a table; JSON has all."""


@dataclass(frozen=True, slots=True)
class DisturbedTime:
    """The disturbed time: ``drawn`` are all draws, ``typical`` is the one nearest the median."""

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
        """Return the columns beside the undisturbed time, in seconds: one time, or its quantiles."""
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
        """Describe which ranks wait for which."""
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


def draw_times(
    question: Disturbances,
    once: Callable[[Draw], Outcome],
    undisturbed_s: float,
    on_draw: Callable[[str], None] = lambda _: None,
) -> DisturbedTime:
    """Play the draws of a question; ``once`` plays one draw, and ``on_draw`` is called after each."""
    assert question.disturbance
    drawn = play_draws(
        question.disturbance, once, undisturbed_s,
        draws=DRAWS if question.draws is None else question.draws, seed=question.seed or 0,
        on_draw=lambda: on_draw("drawn"),
    )  # fmt: skip
    return DisturbedTime(question, drawn)


def draw_programs(
    question: Disturbances,
    play: Callable[[Draw], Simulation],
    undisturbed_s: float,
    on_draw: Callable[[str], None] = lambda _: None,
) -> DisturbedTime:
    """Play the draws of a program, and keep the timeline of the typical one."""

    def once(draw: Draw) -> Outcome:
        simulation = play(draw)
        return Outcome(simulation.makespan_s, waits(simulation))

    drawn = draw_times(question, once, undisturbed_s, on_draw).drawn
    assert question.disturbance
    typical = play(Draw(question.disturbance, drawn.seed, drawn.typical))
    return DisturbedTime(question, drawn, timeline(typical))
