"""The work of a simulation: estimated beforehand, announced where it takes long, refused beyond a limit.

Both apply to all simulations inside a ``with``, at any depth, so callers in between need not pass them on;
outside, nothing is announced and the limits apply:

with watched(print, lambda done, total: None), forced():     predict(...)
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from ringside.sim.schedule import Schedule
from ringside.sim.streams import TransferStreams
from ringside.topologies import Topology
from ringside.topologies.units import format_size

MAX_TRANSFERS = 20_000_000
"""Maximum transfers per simulation, about a quarter of an hour's work, unless forced."""

MAX_OPERATIONS = 5_000_000
"""Maximum operations per training step, about three minutes' work and 4 GB, unless forced."""

MAX_MEMORY = 8 << 30
"""Maximum estimated bytes per simulation, unless forced."""

LONG_S = 10.0
"""Seconds of work from which a simulation is announced."""

EVERY = 10_000
"""Transfers between two progress reports."""

RATES = {"simpy": 20_000, "fast": 300_000, "rounds": 1_000_000}
"""Transfers per second on a modest core, by engine, without rounds; ``benchmarks`` measures more."""

_CONNECTION_BYTES = 2500
"""Bytes that the engine keeps per connection, its transfers under way included; measured."""

_WALK = 10_000

SCRIPT_OPERATIONS = 100
"""The cost of running one rank's script, in recorded operations."""

OPERATIONS_RATE = 40_000
"""Operations recorded per second on a modest core."""


class TooMuchError(ValueError):
    """A simulation beyond the limits; the message states its work."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The estimated cost of one simulation: transfers, or segments where there are more; connections."""

    transfers: int
    connections: int
    engine: str = "simpy"

    @property
    def seconds(self) -> float:
        """Time on one core."""
        return self.transfers / RATES[self.engine]

    @property
    def memory(self) -> int:
        """Bytes."""
        return self.connections * _CONNECTION_BYTES


_say: ContextVar[Callable[[str], None]] = ContextVar("say", default=lambda _: None)
_show: ContextVar[Callable[[int, int], None]] = ContextVar("show", default=lambda *_: None)
_forced: ContextVar[bool] = ContextVar("forced", default=False)


@contextmanager
def watched(say: Callable[[str], None], show: Callable[[int, int], None]) -> Iterator[None]:
    """Announce long simulations by ``say``, and report their transfers, done and in all, to ``show``."""
    saying, showing = _say.set(say), _show.set(show)
    try:
        yield
    finally:
        _say.reset(saying)
        _show.reset(showing)


@contextmanager
def forced(force: bool = True) -> Iterator[None]:
    """Lift the limits if ``force`` is set."""
    token = _forced.set(force)
    try:
        yield
    finally:
        _forced.reset(token)


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable Python's cyclic garbage collector, which takes half the time and frees nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def consider(plan: Schedule, graph: Topology, engine: str = "simpy") -> None:
    """Announce a long simulation; raise `TooMuchError` beyond the limits, unless forced."""
    light = min(int(LONG_S * RATES[engine]), MAX_MEMORY // _CONNECTION_BYTES)
    if not has_more_than(light, plan, graph):
        return
    effort = replace(estimate(plan, graph), engine=engine)
    most = MAX_TRANSFERS * RATES[engine] // RATES["simpy"]
    if effort.seconds < LONG_S and effort.memory < MAX_MEMORY:
        return
    collective = plan.collective
    what = f"{plan.algorithm} {collective.kind} of {format_size(collective.nbytes)} on {plan.ranks} ranks"
    cost = f"{effort.transfers:,} transfers to simulate, about {_spoken(effort.seconds)}"
    if effort.memory > MAX_MEMORY / 8:
        cost += f" and {effort.memory / 2**30:.1f} GiB"
    if not _forced.get() and (effort.transfers > most or effort.memory > MAX_MEMORY):
        raise TooMuchError(
            f"{what}: {cost}; the maximum is {most:,} and {format_size(MAX_MEMORY)}; "
            f"write fewer ranks, a smaller size or another --algorithm, or --force"
        )
    _say.get()(f"{what}: {cost}")


def say(text: str) -> None:
    """Send a message to the watcher of a simulation."""
    _say.get()(text)


def consider_chunks(count: int) -> None:
    """Raise `TooMuchError` for more chunks than a simulation may have transfers, unless forced."""
    if count > MAX_TRANSFERS and not _forced.get():
        raise TooMuchError(
            f"{count:,} chunks; the maximum is {MAX_TRANSFERS:,}; write a smaller size, or --force"
        )


def consider_operations(count: int) -> None:
    """Raise `TooMuchError` for a step of more operations than `MAX_OPERATIONS`, unless forced."""
    if count > MAX_OPERATIONS and not _forced.get():
        raise TooMuchError(
            f"a step of about {count:,} operations; the maximum is {MAX_OPERATIONS:,}; write a smaller "
            "--batch, a larger --micro-batch, or --force"
        )


def consider_ranks(ranks: int, operations: int) -> None:
    """Announce a job that takes long to record; raise `TooMuchError` beyond the limit.

    Each rank has up to ``operations``, besides running its script.
    """
    count = ranks * (operations + SCRIPT_OPERATIONS)
    seconds = count / OPERATIONS_RATE
    if seconds < LONG_S:
        return
    cost = f"{ranks:,} ranks of up to {operations:,} operations to record, about {_spoken(seconds)}"
    if count > MAX_TRANSFERS and not _forced.get():
        raise TooMuchError(
            f"{cost}; the maximum is about {_spoken(MAX_TRANSFERS / OPERATIONS_RATE)}; write fewer ranks, "
            "or --force"
        )
    say(cost)


def show(done: int, total: int) -> None:
    """Report progress to the watcher: transfers done, and in all."""
    _show.get()(done, total)


def estimate(plan: Schedule, graph: Topology) -> Effort:
    """Estimate the transfers and connections of a schedule, without a walk through millions of steps.

    The first steps are counted. The rest follows from the distance that each chunk travels, which is exact
    where no transfer spans several chunks and none goes through a third rank.
    """
    segments = _segments(plan, graph)
    if isinstance(plan.steps, TransferStreams):
        return Effort(int(plan.steps.count.sum()) + segments, len(plan.steps.order))
    transfers, connections = _walked(plan, _travels(plan) * len(plan.chunks))
    return Effort(transfers + segments, connections)


def has_more_than(transfers: int, plan: Schedule, graph: Topology) -> bool:
    """Return whether there are more than ``transfers`` transfers or segments, without counting them all."""
    rest = transfers - _segments(plan, graph)
    return rest < 0 or plan.longer_than(rest)


def _segments(plan: Schedule, graph: Topology) -> int:
    segment = graph.graph.get("segment")
    return _travels(plan) * plan.collective.space // segment if segment else 0


def _travels(plan: Schedule) -> int:
    """Return the number of rank-to-rank trips of the chunks."""
    others = plan.ranks - 1
    if not others:
        return 0
    known = {"all_reduce": 2 * others, "all_to_all": 1, "gather": 1, "scatter": 1, "sendrecv": 1}
    return known.get(plan.collective.kind, others)


def _walked(plan: Schedule, expected: int) -> tuple[int, int]:
    """Count transfers and connections along the steps, but stop at very large numbers."""
    transfers, pairs, before = 0, set[int](), b""
    for number, moved in enumerate(plan.steps()):
        transfers += len(moved)
        ends = moved.src * plan.ends + moved.dst
        if ends.tobytes() != before:  # a ring's steps are all equal
            before = ends.tobytes()
            pairs.update(ends.tolist())
        if number > _WALK or transfers > MAX_TRANSFERS or len(pairs) * _CONNECTION_BYTES > MAX_MEMORY:
            return max(transfers, expected), len(pairs)
    return transfers, len(pairs)


def _spoken(seconds: float) -> str:
    for unit, length in (("years", 31_557_600), ("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} seconds"
