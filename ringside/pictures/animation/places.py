"""Places of ranks in an animation: a ring or others on a circle, trees with a level for each depth."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ringside.pictures.collectives.schedule import tree_of
from ringside.sim.engine.timeline import Timeline
from ringside.sim.schedule import Links

WIDTH, HEIGHT = 400.0, 340.0
"""Units of the drawing."""

_MARGIN = 26.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Places:
    """Where ranks, and switches after them, are drawn: once each, or once for each of two trees.

    ``nodes`` are ends with their points, ``node_of`` has a node by channel and end, ``roots`` are the nodes
    at the top of trees.
    """

    nodes: list[tuple[int, Point]]
    node_of: dict[tuple[int, int], int]
    roots: frozenset[int]
    radius: float


def links_of(timeline: Timeline) -> Links:
    """Return each channel's sources and destinations, and whether the receiver adds the first data."""
    links: Links = {}
    for sent in timeline.transfers:
        links.setdefault(sent.channel, {}).setdefault((sent.src, sent.dst), sent.reduce)
    return dict(sorted(links.items()))


def places_of(timeline: Timeline) -> Places:
    """Return the places that show how the ranks are connected."""
    links = links_of(timeline)
    trees = {channel: tree_of(pairs) for channel, pairs in links.items()}
    ends = timeline.ranks + timeline.switches
    known = {channel: above for channel, above in trees.items() if above}
    if (
        timeline.switches == 0
        and len(known) == len(links)
        and all(len(t) == ends - 1 for t in known.values())
    ):
        different = list({tuple(sorted(above.items())): above for above in known.values()}.values())
        if len(different) <= 2:
            return _trees(known, different, ends)
    return _circle(links, timeline.ranks, timeline.switches)


def _trees(trees: Mapping[int, dict[int, int]], different: list[dict[int, int]], ends: int) -> Places:
    """Place ranks from left to right by number; a second tree stands on its head below the first."""
    step = (WIDTH - 2 * _MARGIN) / max(ends - 1, 1)
    half = len(different) == 2
    nodes: list[tuple[int, Point]] = []
    roots = set()
    for number, above in enumerate(different):
        depths = {end: _depth(above, end) for end in range(ends)}
        level = (HEIGHT / 2 - 18 if half else HEIGHT) - 2 * _MARGIN / (2 if half else 1)
        level /= max(max(depths.values()), 1)
        for end in range(ends):
            y = _MARGIN + level * depths[end]
            if not depths[end]:
                roots.add(len(nodes))
            nodes.append((end, (_MARGIN + step * end, HEIGHT - y if number else y)))
    node_of = {
        (channel, end): different.index(above) * ends + end
        for channel, above in trees.items()
        for end in range(ends)
    }
    return Places(nodes, node_of, frozenset(roots), min(13.0, 0.44 * step))


def _depth(above: Mapping[int, int], end: int) -> int:
    depth = 0
    while end in above:
        end, depth = above[end], depth + 1
    return depth


def _circle(links: Links, ranks: int, switches: int) -> Places:
    """Place ranks on a circle, a ring in its own order, and switches inside it."""
    order = _ring_order(links, ranks) or list(range(ranks))
    middle, size = (WIDTH / 2, HEIGHT / 2), HEIGHT / 2 - _MARGIN
    points = {end: _on_circle(middle, size, place / ranks) for place, end in enumerate(order)}
    inner = size / 3 if switches > 1 else 0.0
    points |= {ranks + place: _on_circle(middle, inner, place / switches) for place in range(switches)}
    nodes = [(end, points[end]) for end in range(ranks + switches)]
    node_of = {(channel, end): end for channel in links for end in range(ranks + switches)}
    return Places(nodes, node_of, frozenset(), min(13.0, 0.44 * 2 * math.pi * size / max(ranks, 1)))


def _on_circle(middle: Point, size: float, share: float) -> Point:
    angle = 2 * math.pi * (share - 0.25)
    return middle[0] + size * math.cos(angle), middle[1] + size * math.sin(angle)


def _ring_order(links: Links, ranks: int) -> list[int] | None:
    """Return the ranks in the order of the ring that they form, if they form one."""
    after = _successors(pair for pairs in links.values() for pair in pairs)
    if after is None:
        return None
    order = [0]
    while len(order) < ranks and (end := after.get(order[-1])) not in (None, 0):
        order.append(end)
    return order if len(order) == ranks else None


def _successors(pairs: Iterable[tuple[int, int]]) -> dict[int, int] | None:
    after: dict[int, int] = {}
    for src, dst in pairs:
        if after.setdefault(src, dst) != dst:
            return None
    return after
