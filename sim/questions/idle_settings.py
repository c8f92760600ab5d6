"""Find rates that were set without effect, and the link that is the bottleneck instead."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import isclose

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Library, answer
from ringside.sim.libraries.scheduled import Scheduled
from ringside.topologies import Routes, Topology, ranks
from ringside.topologies.fabrics.refitting import parted
from ringside.topologies.graph import Hop
from ringside.topologies.units import format_rate, parse_rate

CHEAP_S = 2.0
"""Longest answer that is recomputed without a setting to test its effect, seconds."""

_SETTING = {"ib": "nic", "ethernet": "bandwidth", "upi": "socket"}
"""The setting of a kind of link, where its name differs."""


def idle_rates(
    library: Library,
    find: Callable[[Mapping[str, str]], Library],
    values: Mapping[str, str],
    collectives: Sequence[Collective],
    engine: str,
    took_s: float,
) -> list[str]:
    """Return a sentence for every rate among the settings that has no effect on the answers.

    ``find`` returns the library with other settings, uncalibrated. A long answer is not recomputed; instead
    the routes between neighbouring ranks decide.
    """
    rates = list(_rates(values))
    if library.has_tuner:
        return [note for key in rates if (note := _of_tuner(find, parted(values)[2], key, collectives))]
    if not isinstance(library, Scheduled) or library.calibration:
        return []
    sentences = []
    for key in rates:
        without = find({other: value for other, value in values.items() if other != key})
        if not isinstance(without, Scheduled):
            continue
        changed = {hop for hop in library.graph.edges if library.graph.edges[hop] != without.graph.edges[hop]}
        if not changed:
            sentences.append(f"{key} has no effect: every link is the same without it")
        elif took_s > CHEAP_S:
            if not any(_narrow(library, without, route, changed) for route in _around(library.graph)):
                sentences.append(
                    f"{key} has no effect between neighbouring ranks: {_limit(library.graph)} limits"
                )
        elif _same(library, without, collectives, engine):
            sentences.append(f"{key} has no effect: {_limit(library.graph)} limits")
    return sentences


def _rates(values: Mapping[str, str]) -> Iterator[str]:
    for key, value in values.items():
        with suppress(ValueError):
            parse_rate(value)
            yield key


def _same(one: Library, other: Library, collectives: Sequence[Collective], engine: str) -> bool:
    times = ([answer(library, each, engine).time_s for each in collectives] for library in (one, other))
    return all(isclose(a, b, rel_tol=1e-9) for a, b in zip(*times, strict=True))


def _of_tuner(
    find: Callable[[Mapping[str, str]], Library],
    values: Mapping[str, str],
    key: str,
    collectives: Sequence[Collective],
) -> str | None:
    """Return the sentence by the tuner's own times, which are fast; ignore fabric contention."""
    if key not in values:
        return None
    changed = {name: value for name, value in values.items() if name != key}
    one, other = find(values), find(changed)
    if not (one.comm and other.comm):
        return None
    if not _same(one, other, collectives, "model"):
        return None
    figures = {name: getattr(one.comm.system, name) for name in ("nvlink", "pcie", "nic", "socket")}
    if figures.get(key) == getattr(other.comm.system, key, None):
        return f"{key} has no effect: every link is the same without it"
    inside = ("nvlink",) if figures["nvlink"] else ("pcie", "socket")
    used = ("nic", "pcie") if one.nodes > 1 else inside
    limit = min(
        (name for name in used if name != key and figures[name]), key=figures.__getitem__, default=key
    )
    if limit == key or (key in used and figures[limit] >= figures[key]):
        return f"{key} has no effect: NCCL's tuner gives the same time without it"
    return f"{key} has no effect: {limit} at {format_rate(figures[limit], 4)} limits"


def _around(graph: Topology) -> list[tuple[Hop, ...]]:
    """Return the routes from each rank to the next."""
    routes, count = Routes(graph), len(ranks(graph))
    return [routes.route(rank, (rank + 1) % count) for rank in range(count if count > 1 else 0)]


def _narrow(one: Scheduled, other: Scheduled, route: Sequence[Hop], changed: set[Hop]) -> bool:
    """Return whether a changed link is a route's bottleneck, before or after the change."""
    return any(
        any(hop in changed and graph.edges[hop]["bandwidth"] <= least for hop in route)
        for graph in (one.graph, other.graph)
        for least in [min(graph.edges[hop]["bandwidth"] for hop in route)]
    )


def _limit(graph: Topology) -> str:
    """Describe the slowest link when every rank sends the same amount to the next."""
    load = Counter(hop for route in _around(graph) for hop in route)
    busiest = max(load, key=lambda hop: (load[hop] / graph.edges[hop]["bandwidth"], hop))
    kind, rate = graph.edges[busiest]["kind"], format_rate(graph.edges[busiest]["bandwidth"], 4)
    switches = all(graph.nodes[node]["kind"] == "switch" for node in busiest)
    return f"{' -> '.join(busiest) if switches else _SETTING.get(kind, kind)} at {rate}"
