"""``ringside simulate --nodes`` asks several counts of machines; ``--plot`` draws curves of what it finds."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ringside import console
from ringside.sim.libraries.library import Library, Prediction

_TIMES = {"measured": "measured", "model": "closed-form"}
"""How a picture calls the times of an engine that does not simulate."""


def clusters_of(cluster: str, nodes: str | None, ranks: int | None) -> dict[int | None, str]:
    """The clusters that are asked, by their count of machines where several are."""
    if nodes is None:
        return {None: cluster}
    name = console.check_count(cluster, nodes)
    if ranks is not None:
        raise ValueError(
            f"-g {ranks}, but --nodes {nodes} counts, and takes all ranks; leave one or the other out"
        )
    return {count: f"{name}:{count}" for count in console.counts(nodes)}


def draw(
    answers: Mapping[int | None, Sequence[Prediction]], library: Library, cluster: str, path: Path
) -> None:
    """Draw times and bus bandwidths against nodes, or against sizes of one cluster."""
    from ringside.pictures.collectives.curves import Point, draw_curves

    points = [
        Point(count, one.collective, one.time_s, (one.time_lo_s, one.time_hi_s), one.algorithm)
        for count, predictions in answers.items()
        for one in predictions
    ]
    engines = {one.engine for predictions in answers.values() for one in predictions}
    times = " and ".join(sorted({_TIMES.get(engine, "simulated") for engine in engines}))
    title = f"{points[0].collective.kind} on {cluster}: {library.name}, {times} times"
    draw_curves(points, title, path)
