"""How much work a simulation is: estimated beforehand, said where it takes long, refused beyond a limit.

Both hold for all that is simulated inside a ``with``, however deep, so nothing between has to hand
them on; without one nothing is said and the limits hold:

    with watched(print, lambda done, total: None), forced():
        predict(...)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from ringside.sim.schedule import Schedule
from ringside.sim.streams import Streams
from ringside.topologies import Topology
from ringside.topologies.units import format_size

MAX_TRANSFERS = 20_000_000
"""As many transfers one simulation may have, some quarter of an hour's work, unless it is forced."""

MAX_OPERATIONS = 5_000_000
"""As many operations a training step may have, some three minutes' work and 4 GB, unless it is forced."""

MAX_MEMORY = 8 << 30
"""Bytes that one simulation may take, as estimated, unless it is forced."""

LONG_S = 10.0
"""What takes longer is announced."""

EVERY = 10_000
"""Transfers from one sign of life of a simulation to the next."""

RATES = {"simpy": 20_000, "fast": 300_000, "rounds": 1_000_000}
"""Transfers a second of a modest core, by engine; what goes by rounds apart; ``benchmarks`` measures more."""

_CONNECTION_BYTES = 2500
"""What the engine keeps for each connection, its transfers on the way included; measured."""

_WALK = 10_000

SCRIPT_OPERATIONS = 100
"""What it costs to run a rank's script anew, in operations that it asks for."""

OPERATIONS_RATE = 40_000
"""Operations a second that are written down on a modest core."""


class TooMuchError(ValueError):
    """A simulation beyond the limits; the message says how much work it is."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What one simulation costs, as estimated: transfers, or segments where there are more; connections."""

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
    """Have long simulations announced by ``say``, and their transfers, done and in all, told to ``show``."""
    saying, showing = _say.set(say), _show.set(show)
    try:
        yield
    finally:
        _say.reset(saying)
        _show.reset(showing)


@contextmanager
def forced(force: bool = True) -> Iterator[None]:
    """Lift the limits, if ``force`` says so."""
    token = _forced.set(force)
    try:
        yield
    finally:
        _forced.reset(token)


def consider(plan: Schedule, graph: Topology, engine: str = "simpy") -> None:
    """Announce a simulation that takes long; raise `TooMuchError` where it takes too much, if not forced."""
    light = min(int(LONG_S * RATES[engine]), MAX_MEMORY // _CONNECTION_BYTES)
    if not has_more_than(light, plan, graph):
        return
    effort = replace(estimate(plan, graph), engine=engine)
    most = MAX_TRANSFERS * RATES[engine] // RATES["simpy"]
    if effort.seconds < LONG_S and effort.memory < MAX_MEMORY:
        return
    collective = plan.collective
    what = f"{plan.algorithm} {collective.kind} of {format_size(collective.nbytes)} on {plan.ranks} ranks"
    cost = f"{effort.transfers:,} transfers to simulate, some {_spoken(effort.seconds)}"
    if effort.memory > MAX_MEMORY / 8:
        cost += f" and {effort.memory / 2**30:.1f} GiB"
    if not _forced.get() and (effort.transfers > most or effort.memory > MAX_MEMORY):
        raise TooMuchError(
            f"{what}: {cost}; the most is {most:,} and {format_size(MAX_MEMORY)}; "
            f"write fewer ranks, a smaller size or another --algorithm, or --force"
        )
    _say.get()(f"{what}: {cost}")


def say(text: str) -> None:
    """Tell who watches something of a simulation."""
    _say.get()(text)


def consider_chunks(count: int) -> None:
    """Raise `TooMuchError` for more chunks than a simulation may have transfers, if not forced."""
    if count > MAX_TRANSFERS and not _forced.get():
        raise TooMuchError(
            f"{count:,} chunks; the most is {MAX_TRANSFERS:,}; write a smaller size, or --force"
        )


def consider_operations(count: int) -> None:
    """Raise `TooMuchError` for a step of more operations than `MAX_OPERATIONS`, if not forced."""
    if count > MAX_OPERATIONS and not _forced.get():
        raise TooMuchError(
            f"a step of some {count:,} operations; the most is {MAX_OPERATIONS:,}; write a smaller --batch, "
            "a larger --micro-batch, or --force"
        )


def consider_ranks(ranks: int, operations: int) -> None:
    """Announce a job of so many ranks that takes long to write down; raise `TooMuchError` beyond the limit.

    Each rank has up to ``operations``, beside running its script.
    """
    count = ranks * (operations + SCRIPT_OPERATIONS)
    seconds = count / OPERATIONS_RATE
    if seconds < LONG_S:
        return
    cost = f"{ranks:,} ranks of up to {operations:,} operations to write down, some {_spoken(seconds)}"
    if count > MAX_TRANSFERS and not _forced.get():
        raise TooMuchError(
            f"{cost}; the most is some {_spoken(MAX_TRANSFERS / OPERATIONS_RATE)}; write fewer ranks, "
            "or --force"
        )
    say(cost)


def show(done: int, total: int) -> None:
    """Tell who watches that a simulation goes on: so many transfers are done, of so many in all."""
    _show.get()(done, total)


def estimate(plan: Schedule, graph: Topology) -> Effort:
    """Transfers and connections of a schedule, without a walk through millions of steps.

    The first steps are counted. What follows is taken from what each chunk has to travel, which is
    exact where no transfer spans several chunks and none goes through a third rank.
    """
    segments = _segments(plan, graph)
    if isinstance(plan.steps, Streams):
        return Effort(int(plan.steps.count.sum()) + segments, len(plan.steps.order))
    transfers, connections = _walked(plan, _travels(plan) * len(plan.chunks))
    return Effort(transfers + segments, connections)


def has_more_than(transfers: int, plan: Schedule, graph: Topology) -> bool:
    """Whether a simulation has more transfers, or segments, than so many; looks no further than it must."""
    rest = transfers - _segments(plan, graph)
    return rest < 0 or plan.longer_than(rest)


def _segments(plan: Schedule, graph: Topology) -> int:
    segment = graph.graph.get("segment")
    return _travels(plan) * plan.collective.space // segment if segment else 0


def _travels(plan: Schedule) -> int:
    """From how many ranks to another each chunk has to go."""
    others = plan.ranks - 1
    if not others:
        return 0
    known = {"all_reduce": 2 * others, "all_to_all": 1, "gather": 1, "scatter": 1, "sendrecv": 1}
    return known.get(plan.collective.kind, others)


def _walked(plan: Schedule, expected: int) -> tuple[int, int]:
    """Transfers and connections by a walk along the steps, cut short where there are very many."""
    transfers, pairs, before = 0, set[int](), b""
    for number, moved in enumerate(plan.steps()):
        transfers += len(moved)
        ends = moved.src * plan.ends + moved.dst
        if ends.tobytes() != before:  # a ring's steps are all alike
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
