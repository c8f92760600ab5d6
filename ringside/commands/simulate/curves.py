"""``ringside simulate --plot``: curves of time and bus bandwidth."""

from pathlib import Path

from ringside.sim.questions.collective_time import CollectiveTimes

_TIMES = {"measured": "measured", "model": "closed-form"}
"""Names in pictures for the times of engines that do not simulate."""


def draw(answer: CollectiveTimes, path: Path) -> None:
    """Draw times and bus bandwidths against nodes, or against sizes of one cluster."""
    from ringside.pictures.collectives.curves import Point, draw_curves

    points = [
        Point(count, one.collective, one.time_s, (one.time_lo_s, one.time_hi_s), one.algorithm)
        for count, predicted in answer.by_nodes.items()
        for one in predicted.predictions
    ]
    engines = {one.engine for one in answer.predictions}
    times = " and ".join(sorted({_TIMES.get(engine, "simulated") for engine in engines}))
    question, library = answer.question, answer.first.library.name
    draw_curves(points, f"{question.kind} on {question.cluster}: {library}, {times} times", path)
