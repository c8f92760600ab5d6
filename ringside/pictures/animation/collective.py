"""Algorithms of one collective side by side, their chunks in step with one clock."""

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ringside.pictures.animation.page import Animation, Panel, SizesTable
from ringside.pictures.animation.places import places_of
from ringside.pictures.animation.replay import Progress, replay
from ringside.pictures.collectives.curves import Point, crossings
from ringside.pictures.style import occupied
from ringside.sim.algorithms import ALGORITHMS
from ringside.sim.engine.timeline import Timeline
from ringside.sim.libraries.library import Library, Prediction
from ringside.sim.program.timeline import covered_s, union
from ringside.sim.questions.collective_time import CollectiveTime, CollectiveTimes
from ringside.sim.schedule import Ints
from ringside.topologies.units import format_duration, format_size

MOST_RANKS = 64
MOST_MESSAGES = 20_000
"""The limits of one animation; a page of 20,000 messages has about a megabyte."""

_BINS = 120
"""Points of the curve of ranks that send."""

_MOMENTS = 10
"""Rows of the text that says what moves when."""

_SMALLEST, _LARGEST = "1K", "256M"
"""The sizes at which algorithms are compared besides the animated one."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """One algorithm: its prediction, and its timeline carried out again."""

    library: Library
    prediction: Prediction
    timeline: Timeline
    replay: Progress

    @property
    def bytes_s(self) -> float:
        """The seconds for which the busiest link carries bytes."""
        collective = self.prediction.collective
        ways = (self.prediction.choice, self.prediction.algorithm)
        for candidate in self.library.candidates(collective):
            if candidate.name in ways:
                return max(self.library.busy(collective, candidate).values(), default=0.0)
        return 0.0


def animated(answer: CollectiveTimes) -> Animation:
    """Return the page of a traced answer's first size: an algorithm beside each other that it names."""
    question, library = answer.question, answer.first.library
    several = answer.by_algorithm(traced=True) if question.compares else {}
    predictions = [own[0] for own in several.values()] or [answer.predictions[0]]
    shown = [_shown(library, one) for one in predictions]
    shown = [one for one in shown if one.timeline.transfers]
    _check(question, shown)
    first = shown[0].prediction
    size = format_size(first.collective.nbytes)
    what = f"{first.collective.kind} of {size} on {question.cluster}"
    fastest, *others = sorted(shown, key=lambda one: one.prediction.time_s)
    return Animation(
        kind="collective",
        title=what,
        headline=_headline(what, fastest, others),
        caption=_caption(shown),
        panels=[_panel(one) for one in shown],
        figures=(
            "algorithm",
            "time",
            "bytes alone",
            "longest chain",
            "a rank sends at most",
            "ranks sending",
        ),
        rows=[_row(one) for one in shown],
        moments=_moments(shown),
        sizes=_sizes(question, library) if others and library.plays_links else None,
        notes=[*answer.notes, *_not_drawn(shown)],
    )


def _shown(library: Library, prediction: Prediction) -> _Shown:
    timeline = prediction.timeline
    assert timeline is not None  # every traced prediction has one
    blocks = _blocks(library, prediction, timeline)
    return _Shown(library, prediction, timeline, replay(timeline, prediction.collective, blocks))


def _blocks(library: Library, prediction: Prediction, timeline: Timeline) -> Ints:
    """Return the block of each chunk; a channel of several numbers its own, block after block."""
    collective = prediction.collective
    if prediction.channels == 1 or collective.kind == "all_to_all":
        (candidate, *_) = [
            one for one in library.candidates(collective) if one.name == prediction.choice
        ] or [library.choose(collective)]
        return library.schedule(collective, candidate).chunks.block
    count = max((sent.chunk + sent.span for sent in timeline.transfers), default=1)
    return np.arange(count) * collective.num_blocks // count


def _check(question: CollectiveTime, shown: Sequence[_Shown]) -> None:
    """Raise ValueError for nothing to show, or too much."""
    if not shown:
        raise ValueError("--animate: nothing is sent; leave it out, or write more ranks or a larger --size")
    ranks, messages = shown[0].timeline.ranks, sum(len(one.timeline.transfers) for one in shown)
    if ranks > MOST_RANKS:
        raise ValueError(f"--animate shows up to {MOST_RANKS} ranks, not {ranks}; write fewer, as -g 16")
    if messages > MOST_MESSAGES:
        raise ValueError(
            f"--animate shows up to {MOST_MESSAGES:,} messages, not {messages:,}; write a smaller --size or "
            "fewer algorithms"
        )


def _headline(what: str, fastest: _Shown, others: Sequence[_Shown]) -> str:
    name, time_s = fastest.prediction.algorithm, fastest.prediction.time_s
    if not others:
        return f"{name} takes {format_duration(time_s, 4)} for {what}."
    slower = [f"{one.prediction.algorithm} {one.prediction.time_s / time_s:.2f} times that" for one in others]
    return f"{name} takes {format_duration(time_s, 4)} for {what}, {' and '.join(slower)}."


def _caption(shown: Sequence[_Shown]) -> str:
    """Describe the picture in words."""
    ranks, switches = shown[0].timeline.ranks, max(one.timeline.switches for one in shown)
    names = " beside ".join(one.prediction.algorithm for one in shown)
    joined = f" and {switches} switches" if switches else ""
    return (
        f"{names}: {ranks} ranks{joined} as numbered circles. A message moves along a line from its sender "
        "to its receiver while the clock runs from its first byte to its arrival: a white circle is a part "
        "of a sum, a dark square is complete data, the number is its first chunk. A rank fills up like a "
        "clock's face: light with the contributions that it has gathered, dark with the part of its result "
        "that is complete. The curve below is the share of ranks that send."
    )


def _panel(one: _Shown) -> Panel:
    collective, time_s = one.prediction.collective, one.prediction.time_s
    finished = one.replay.complete_at()
    bytes_s = one.bytes_s
    rest = format_duration(max(time_s - bytes_s, 0.0), 3)
    why = [
        f"{one.prediction.algorithm} sends {len(one.timeline.transfers):,} messages; the longest chain of "
        f"messages that wait for one another has {one.replay.chain}.",
        f"The busiest link carries bytes for {format_duration(bytes_s, 4)} of the "
        f"{format_duration(time_s, 4)}; the remaining {rest} are latency, and links that wait for data.",
    ]
    if finished and collective.ranks > 1:
        first, last = (format_duration(moment, 4) for moment in (min(finished), max(finished)))
        why.append(
            f"The first rank has its whole result after {first}, the last after {last}."
            if first != last
            else f"All ranks have their whole results at the same time, after {first}."
        )
    return Panel(
        title=one.prediction.algorithm,
        answer=format_duration(time_s, 4),
        what=_about(one.prediction.algorithm),
        why=why,
        scene=_scene(one),
    )


def _about(algorithm: str) -> str:
    """Return the description of the algorithm from its module, without sources."""
    builds = ALGORITHMS.get(algorithm.partition(":")[0])
    module = inspect.getmodule(next(iter(builds.values()))) if builds else None
    text = re.sub(r"\s*\([^()]*(\([^()]*\)[^()]*)*\)", "", inspect.getdoc(module) or "")
    kept = [part for part in text.split("\n\n") if "`" not in part]
    return " ".join(" ".join(kept).split())


def _scene(one: _Shown) -> dict[str, Any]:
    """Return the panel's data: places, messages, shares of results, ranks that send; in nanoseconds."""
    timeline, places = one.timeline, places_of(one.timeline)
    moves = [
        [
            places.node_of[sent.channel, sent.src], places.node_of[sent.channel, sent.dst],
            *map(_ns, (sent.sent, sent.left, sent.delivered)), sent.chunk, int(is_complete),
        ]
        for sent, is_complete in zip(timeline.transfers, one.replay.carried, strict=True)
    ]  # fmt: skip
    return {
        "ranks": timeline.ranks,
        "radius": round(places.radius, 2),
        "nodes": [
            [end, round(x, 1), round(y, 1), int(place in places.roots)]
            for place, (end, (x, y)) in enumerate(places.nodes)
        ],
        "moves": sorted(moves, key=lambda move: move[2]),
        "shares": [
            [[_ns(t), round(gathered, 3), round(complete, 3)] for t, gathered, complete in own]
            for own in one.replay.shares
        ],
        "busy": [round(share, 3) for share in _sending(timeline, _BINS)],
        "end": _ns(_end(timeline)),
    }


def _ns(seconds: float) -> float:
    return round(seconds * 1e9, 1)


def _end(timeline: Timeline) -> float:
    return max(sent.delivered for sent in timeline.transfers)


def _sending(timeline: Timeline, bins: int) -> list[float]:
    """Return the share of ranks that send, in bins of the timeline."""
    edges = np.linspace(0.0, _end(timeline), bins + 1)
    total = np.zeros(bins)
    for spans in _sends(timeline):
        total += occupied(union(spans), edges)
    shares: list[float] = (total / np.diff(edges) / timeline.ranks).tolist()
    return shares


def _sends(timeline: Timeline) -> list[list[tuple[float, float]]]:
    sends: list[list[tuple[float, float]]] = [[] for _ in range(timeline.ranks + timeline.switches)]
    for sent in timeline.transfers:
        sends[sent.src].append((sent.sent, sent.left))
    return sends[: timeline.ranks]


def _row(one: _Shown) -> tuple[str, ...]:
    sending = sum(map(covered_s, _sends(one.timeline))) / (_end(one.timeline) * one.timeline.ranks)
    most = max(one.replay.sent)
    nbytes = one.prediction.collective.nbytes
    return (
        one.prediction.algorithm,
        format_duration(one.prediction.time_s, 4),
        format_duration(one.bytes_s, 4),
        f"{one.replay.chain} messages",
        f"{most / nbytes:.2f} times the data" if nbytes else "nothing",
        f"{sending:.0%} on average",
    )


def _moments(shown: Sequence[_Shown]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return what moves at moments of the clock, in words: heads and rows."""
    end = max(_end(one.timeline) for one in shown)
    rows = []
    for place in range(_MOMENTS + 1):
        moment = end * place / _MOMENTS
        rows.append((format_duration(moment, 3), *(_state(one, moment) for one in shown)))
    return ("time", *(one.prediction.algorithm for one in shown)), rows


def _state(one: _Shown, moment: float) -> str:
    moving = sum(sent.sent <= moment < sent.delivered for sent in one.timeline.transfers)
    complete = [max(done for t, _, done in own if t <= moment * (1 + 1e-9)) for own in one.replay.shares]
    ranks = one.timeline.ranks
    share = sum(complete[:ranks]) / ranks
    return f"{moving} messages move, {share:.0%} of results are complete"


def _sizes(question: CollectiveTime, library: Library) -> SizesTable:
    """Return the times of all algorithms over sizes, and where another one becomes the fastest."""
    series = {"size": None, "begin": _SMALLEST, "end": _LARGEST, "factor": 4}
    times = replace(question, **series).ask().by_algorithm()  # type: ignore[arg-type]
    points = [
        Point(None, one.collective, one.time_s, (one.time_lo_s, one.time_hi_s), algorithm)
        for (_, algorithm), predictions in times.items()
        for one in predictions
    ]
    columns = [algorithm for _, algorithm in times]
    by_size: dict[int, dict[str, float]] = {}
    for point in points:
        by_size.setdefault(point.collective.nbytes, {})[point.algorithm] = point.time_s
    changes = [
        f"{after} becomes faster than {before} from about {format_size(round_binary(where))} on"
        for where, before, after in crossings(points, over_nodes=False)
    ]
    return SizesTable(
        columns=columns,
        rows=[
            (
                format_size(size),
                [(format_duration(own[name], 4), own[name] == min(own.values())) for name in columns],
            )
            for size, own in sorted(by_size.items())
        ],
        changes=changes or [f"{min(by_size[min(by_size)], key=by_size[min(by_size)].__getitem__)} "
                            "is the fastest at all of these sizes"],
    )  # fmt: skip


def round_binary(size: float) -> int:
    """Return a size with two digits of its binary unit."""
    unit = 1
    while size >= 1024 * unit:
        unit *= 1024
    return round(float(f"{size / unit:.2g}") * unit)


def _not_drawn(shown: Sequence[_Shown]) -> list[str]:
    """Return what the picture leaves out, a sentence each."""
    notes = []
    for one in shown:
        name, time_s = one.prediction.algorithm, one.prediction.time_s
        if one.prediction.channels > 1:
            notes.append(f"{name}: the slowest of {one.prediction.channels} channels, each on separate links")
        outside = time_s - _end(one.timeline)
        if outside > 1e-6 * time_s:
            notes.append(
                f"{name}: {format_duration(outside, 3)} before the first byte or after the last are not drawn"
            )
    return notes
