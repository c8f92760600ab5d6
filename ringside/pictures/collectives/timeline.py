"""One simulated collective: the ranks' sends and receives, and the busy links, over time."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ringside.pictures.style import DURATIONS, STYLE, occupied, save
from ringside.sim.engine.timeline import Timeline, TransferSpan
from ringside.sim.program.timeline import union

MOST_RANKS = 16
MOST_LINKS = 24
"""The limits of rows: of more ranks the first and last are drawn, of links the busiest."""

BINS = 160
"""Columns of a lane whose messages are too short to be seen."""

_SEEN = 1 / 250
"""The minimum share of the picture's width at which a message is visible."""

_IDLE = "#eeeeee"
_TWO_CHANNELS = ("#08306b", "#6baed6", "#a63603", "#fdae6b")
_SHADES = ("#08306b", "#2f79b5", "#73b2d8", "#b8d4ea")
"""From dark to light, in grey too."""


class _Bar(NamedTuple):
    """A message on one lane, with its colour's number."""

    start: float
    end: float
    colour: int


class _Row(NamedTuple):
    """The lanes of a rank, sending above receiving, or the one of a link."""

    name: str
    lanes: list[list[_Bar]]


def draw_timeline(timeline: Timeline, title: str, notes: Sequence[str], path: Path) -> None:
    """Draw a row per rank and below them one per link, in the legend's colours.

    Messages too narrow to be seen are summed: the height of a bar is the share of a column's time in which
    the lane is busy. ``notes`` are below the title, with omissions.
    """
    if not timeline.transfers:
        raise ValueError(f"{path}: nothing is sent, so there is no timeline; leave it out")
    end = max(sent.delivered for sent in timeline.transfers)
    names, numbers = _meanings(timeline.transfers)
    ranks, links, left_out = _shown(timeline, _rank_rows(timeline, numbers), _link_rows(timeline, numbers))
    widths = [bar.end - bar.start for row in (*ranks, *links) for lane in row.lanes for bar in lane]
    summed = float(np.median(widths)) < _SEEN * end
    is_bar = "a bar is a message"
    if summed:
        is_bar = f"a bar's height is its lane's busy share in one of {BINS} bins"
    with mpl.rc_context(fname=STYLE):
        heights = [0.36 * len(ranks), 0.19 * len(links)]
        figure = Figure(figsize=(9, 1.9 + sum(heights)))
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=heights)
        for axes, rows in ((above, ranks), (below, links)):
            _draw_rows(axes, rows, [colour for _, colour in names], end, summed=summed)
        above.set_title("ranks: sends above, receives below", loc="left", fontsize=9)
        below.set_title("links, each in one direction", loc="left", fontsize=9)
        below.xaxis.set_major_formatter(DURATIONS)
        below.set_xlabel("time from the first byte")
        below.set_xlim(0, end)
        caption = fill("; ".join([*notes, is_bar, *left_out]), 100)
        figure.suptitle(f"{title}\n{caption}", fontsize=10)
        figure.legend(
            handles=[Patch(facecolor=colour, label=name) for name, colour in (*names, ("idle", _IDLE))],
            loc="outside lower center", ncols=3 if len(names) > 2 else len(names) + 1, fontsize=9,
        )  # fmt: skip
        save(figure, path)


def _meanings(transfers: Sequence[TransferSpan]) -> tuple[list[tuple[str, str]], list[int]]:
    """Return the colours' meanings, and each transfer's colour: by channel and reduction, or by chunk."""
    channels = sorted({sent.channel for sent in transfers})
    two = len(channels) == 2
    kinds = [(channels.index(sent.channel) if two else 0, int(not sent.reduce)) for sent in transfers]
    if len(set(kinds)) == 1:
        return _parts(transfers)
    colours = _TWO_CHANNELS if two else _SHADES[::2]
    names = {
        (place, copied): (
            f"{f'channel {channels[place]}, ' if two else ''}{'copied' if copied else 'added'} on arrival",
            colours[2 * place + copied],
        )
        for place, copied in sorted(set(kinds))
    }
    return list(names.values()), [list(names).index(kind) for kind in kinds]


def _parts(transfers: Sequence[TransferSpan]) -> tuple[list[tuple[str, str]], list[int]]:
    """Name messages by the first of their chunks, in up to four groups of neighbours."""
    groups = np.array_split(sorted({sent.chunk for sent in transfers}), len(_SHADES))
    groups = [group for group in groups if len(group)]
    names = [
        (f"first chunk {group[0]}" + (f" to {group[-1]}" if len(group) > 1 else ""), colour)
        for group, colour in zip(groups, _SHADES, strict=False)
    ]
    number = {int(chunk): place for place, group in enumerate(groups) for chunk in group}
    return names, [number[sent.chunk] for sent in transfers]


def _rank_rows(timeline: Timeline, numbers: Sequence[int]) -> list[_Row]:
    """Return the sends and receives of each rank, and of each switch that reduces.

    A message counts as received while it is on its last link.
    """
    last = {span.transfer: span.end - span.start for span in timeline.links}
    names = [f"rank {rank}" for rank in range(timeline.ranks)]
    rows = [_Row(name, [[], []]) for name in [*names, *(f"switch {n}" for n in range(timeline.switches))]]
    for place, (sent, colour) in enumerate(zip(timeline.transfers, numbers, strict=True)):
        rows[sent.src].lanes[0].append(_Bar(sent.sent, sent.left, colour))
        rows[sent.dst].lanes[1].append(_Bar(sent.delivered - last.get(place, 0.0), sent.delivered, colour))
    return rows


def _link_rows(timeline: Timeline, numbers: Sequence[int]) -> list[_Row]:
    """Return the links in use."""
    lanes: dict[int, list[_Bar]] = {}
    for span in timeline.links:
        lanes.setdefault(span.link, []).append(_Bar(span.start, span.end, numbers[span.transfer]))
    return [_Row(timeline.link_names[link], [lanes[link]]) for link in sorted(lanes)]


def _shown(
    timeline: Timeline, ranks: list[_Row], links: list[_Row]
) -> tuple[list[_Row], list[_Row], list[str]]:
    """Return the rows to draw, and descriptions of the others."""
    left_out = []
    ranks = [row for row in ranks if any(row.lanes)]
    if len(ranks) > MOST_RANKS:
        half = MOST_RANKS // 2
        what = "ranks and switches" if timeline.switches else "ranks"
        left_out.append(f"the first and last {half} of {len(ranks)} {what}")
        ranks = [*ranks[:half], *ranks[-half:]]
    if len(links) > MOST_LINKS:
        left_out.append(f"the {MOST_LINKS} busiest of {len(links)} links")
        busy = [-sum(bar.end - bar.start for bar in row.lanes[0]) for row in links]
        busiest = sorted(range(len(links)), key=lambda place: (round(busy[place], 12), place))[:MOST_LINKS]
        links = [links[place] for place in sorted(busiest)]
    return ranks, links, left_out


def _draw_rows(axes: Axes, rows: Sequence[_Row], colours: Sequence[str], end: float, *, summed: bool) -> None:
    """Draw rows below one another, each lane light where it is idle."""
    for place, row in enumerate(rows):
        height = 0.84 / len(row.lanes)
        for number, lane in enumerate(row.lanes):
            low = place - 0.42 + number * height
            axes.broken_barh([(0, end)], (low, 0.92 * height), facecolors=_IDLE, lw=0)
            draw = _draw_sums if summed else _draw_bars
            draw(axes, lane, colours, end, (low, 0.92 * height))
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)


def _draw_bars(
    axes: Axes, lane: Sequence[_Bar], colours: Sequence[str], end: float, where: tuple[float, float]
) -> None:
    """Draw each message, concurrent ones above one another."""
    low, height = where
    tracks = _tracks(lane, end)
    for track, bars in enumerate(tracks):
        part = height / len(tracks)
        for number, colour in enumerate(colours):
            spans = [(bar.start, bar.end - bar.start) for bar in bars if bar.colour == number]
            axes.broken_barh(
                spans, (low + track * part, part), facecolors=colour, edgecolors="white", linewidth=0.4
            )


def _draw_sums(
    axes: Axes, lane: Sequence[_Bar], colours: Sequence[str], end: float, where: tuple[float, float]
) -> None:
    """Draw the busy share of each bin from its foot; concurrent messages share it."""
    low, height = where
    edges = np.linspace(0.0, end, BINS + 1)
    busy = occupied(union([(bar.start, bar.end) for bar in lane]), edges)
    filled = [
        occupied([(bar.start, bar.end) for bar in lane if bar.colour == number], edges)
        for number in range(len(colours))
    ]
    share = busy / np.maximum(np.sum(filled, axis=0), 1e-9 * end)
    foot = np.full(BINS, low + height)
    for seconds, colour in zip(filled, colours, strict=True):
        top = foot - seconds * share / (end / BINS) * height
        axes.stairs(top, edges, baseline=foot, fill=True, color=colour, linewidth=0)
        foot = top


def _tracks(lane: Sequence[_Bar], end: float) -> list[list[_Bar]]:
    """Split a lane's messages into the fewest tracks without overlap, up to rounding."""
    tracks: list[list[_Bar]] = []
    for bar in sorted(lane):
        free = next((track for track in tracks if track[-1].end <= bar.start + 1e-9 * end), None)
        if free is None:
            tracks.append([bar])
        else:
            free.append(bar)
    return tracks
