"""A traced job: the activity of each rank, as recorded and as replayed on another cluster."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from ringside.pictures.jobs.program import MOST_RANKS, add_legend, draw_rows
from ringside.pictures.style import STYLE, save
from ringside.topologies.units import format_duration
from ringside.validation.traces.replay import TraceReplay


def draw_trace(comparison: TraceReplay, path: Path) -> None:
    """Draw a row per traced rank; below, on the same scale, the replay on another cluster, if any."""
    drawn = [("as recorded", comparison.recorded)]
    if comparison.other:
        drawn.append(
            (f"on {comparison.other.cluster} with {comparison.other.library}", comparison.other.timeline)
        )
    ranks = min(MOST_RANKS, len(comparison.recorded.spans))
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10, 0.8 + len(drawn) * (0.8 + 0.4 * ranks)))
        kinds: set[str] = set()
        for axes, (what, timeline) in zip(
            figure.subplots(len(drawn), squeeze=False)[:, 0], drawn, strict=True
        ):
            kinds |= draw_rows(axes, timeline)
            axes.set_xlim(0, max(one.makespan_s for _, one in drawn) or 1)
            axes.set_title(f"{what}: {format_duration(timeline.makespan_s, 4)}", loc="left")
        add_legend(figure, kinds)
        save(figure, path)
