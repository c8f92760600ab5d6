"""``ringside simulate --timeline``: ranks and links over time."""

from pathlib import Path

from ringside.sim.libraries.library import Library, Prediction
from ringside.topologies.units import format_duration, format_size


def draw(library: Library, cluster: str, prediction: Prediction, path: Path) -> None:
    """Draw the events of one prediction; notes below the title give the time not drawn."""
    from ringside.pictures.collectives.timeline import draw_timeline

    timeline, collective = prediction.timeline, prediction.collective
    assert timeline is not None  # every traced prediction has one
    size = format_size(collective.nbytes)
    title = f"{prediction.algorithm} {collective.kind} of {size} on {cluster}, {library.name}"
    title += f": {format_duration(prediction.time_s, 4)}"
    notes = []
    if prediction.channels > 1:
        notes.append(f"the slowest of {prediction.channels} channels, each on separate links")
    outside = prediction.time_s - max((sent.delivered for sent in timeline.transfers), default=0.0)
    if outside > 1e-6 * prediction.time_s:
        notes.append(f"{format_duration(outside, 3)} before the first byte or after the last are not drawn")
    draw_timeline(timeline, title, notes, path)
