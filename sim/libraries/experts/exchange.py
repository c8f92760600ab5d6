"""How long the exchange of a layer's tokens takes, by each library that does it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.libraries.experts.measured import CALLERS, ExpertModel, shipped_model
from ringside.sim.libraries.experts.mechanisms import MECHANISMS, NAMES, OWN
from ringside.sim.libraries.experts.ports import ExpertPorts, ports_of
from ringside.sim.libraries.experts.tokens import PHASES, ExpertTokens, TokenPhase
from ringside.sim.libraries.experts.work import work_of
from ringside.sim.libraries.library import Estimate, Library, answer, check_band, check_time
from ringside.topologies.names import one_of

Seconds = float

COUNT_BYTES = 8
"""Bytes of the number of tokens for one expert, which ranks exchange before an all-to-all of uneven parts."""


@dataclass(frozen=True, slots=True)
class TimeBand:
    """A time and the ends of its 80 % interval, in seconds."""

    low_s: Seconds
    time_s: Seconds
    high_s: Seconds

    def __add__(self, other: "TimeBand") -> "TimeBand":
        return TimeBand(self.low_s + other.low_s, self.time_s + other.time_s, self.high_s + other.high_s)


NOTHING = TimeBand(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ExchangeTime:
    """The phases of an exchange by one mechanism; ``prepare`` are notices or counts before both.

    ``inside_bytes`` cross a rank's NVLink and ``across_bytes`` its share of the cards, both phases together,
    on the busiest rank.
    """

    by: str
    prepare: TimeBand
    dispatch: TimeBand
    combine: TimeBand
    inside_bytes: float
    across_bytes: float

    @property
    def total(self) -> TimeBand:
        """All phases one after another."""
        return self.prepare + self.dispatch + self.combine


def check_mechanism(name: str) -> str:
    """Return the name; raise ValueError for an unknown one."""
    if name not in NAMES:
        raise ValueError(f"unknown exchange {name!r}; write {one_of(NAMES, name)}")
    return name


def refusal(name: str, ports: ExpertPorts, caller: str) -> str:
    """Return why a mechanism does not run on these ports, or was not measured; empty if it can be timed."""
    if name == OWN:
        return "" if caller == CALLERS[0] else f"calls of {caller} with NCCL were not measured"
    mechanism = MECHANISMS[name]
    if reason := mechanism.refuses(ports):
        return reason
    if caller != CALLERS[0] and name not in shipped_model().calls.get(caller, {}):
        return f"calls of {caller} with it were not measured"
    return ""


def exchange_time(
    library: Library,
    exchange: ExpertTokens,
    name: str,
    caller: str = CALLERS[0],
    model: ExpertModel | None = None,
) -> ExchangeTime:
    """Return the time of an exchange among a library's ranks.

    Raise ValueError where the mechanism does not run. ``caller`` is one of `CALLERS`.
    """  # fmt: skip
    ports = ports_of(library)
    exchange.check(ports.ranks)
    if reason := refusal(check_mechanism(name), ports, caller):
        raise ValueError(f"{name}: {reason}; write another `by`")
    if name == OWN:
        return _own_time(library, exchange, ports)
    used = model or shipped_model()
    inside, across = traffic_s(name, exchange, ports, PHASES)
    bands = {one: phase_band(used, name, one, exchange, ports, caller) for one in ("prepare", *PHASES)}
    return ExchangeTime(
        name, bands["prepare"], bands["dispatch"], bands["combine"], inside * ports.nvlink,
        across * ports.network,
    )  # fmt: skip


def token_estimate(library: Library, phase: TokenPhase) -> Estimate:
    """Return the time of one phase among a library's ranks; each has half of the notices before both."""
    exchange, ports = phase.exchange, ports_of(library)
    if reason := refusal(phase.by, ports, CALLERS[0]):
        raise ValueError(f"{phase.by}: {reason}; write another `dispatcher`")
    model = shipped_model()
    notices, band = (
        phase_band(model, phase.by, name, exchange, ports, CALLERS[0]) for name in ("prepare", phase.name)
    )
    low_s, time_s, high_s = (
        one + half / 2
        for one, half in (
            (band.low_s, notices.low_s), (band.time_s, notices.time_s), (band.high_s, notices.high_s)
        )
    )  # fmt: skip
    return Estimate(time_s, low_s, high_s, "model", phase.by, basis=MECHANISMS[phase.by].title)


def phase_band(
    model: ExpertModel, name: str, which: str, exchange: ExpertTokens, ports: ExpertPorts, caller: str
) -> TimeBand:
    """Return the time of one phase, which is at least that of its traffic."""
    phase = model.phase_of(name, which, exchange)
    if phase is None:
        return NOTHING
    us = model.kernels_us(name, phase, [(exchange, ports)])
    seen = MECHANISMS[name].seen(ports)
    factor = model.phases[name][phase].factor(seen.nodes, seen.ranks)
    if (call := model.call(caller, name, which)) is not None:
        us, factor = call.us(us, [ports]), max(factor, float(np.exp(call.spread)))
    time_s = float(us[0]) * 1e-6
    least = max(traffic_s(name, exchange, ports, (which,))) if which in PHASES else 0.0
    band = TimeBand(max(time_s / factor, min(least, time_s)), time_s, time_s * factor)
    what = f"{which} of {exchange.tokens} tokens by {name}"
    check_time(what, time_s, {"traffic": least})
    check_band(what, band.low_s, band.time_s, band.high_s)
    return band


def traffic_s(
    name: str, exchange: ExpertTokens, ports: ExpertPorts, phases: Sequence[str]
) -> tuple[Seconds, Seconds]:
    """Return the seconds of NVLink and of cards at their full rates for the busiest rank's bytes."""
    made = MECHANISMS[name]
    ways = [made.traffic(work_of([(exchange, made.seen(ports))], phase)) for phase in phases]
    inside, across = (1e-6 * sum(float(way[place][0]) for way in ways) for place in (0, 1))
    return inside, across


def _own_time(library: Library, exchange: ExpertTokens, ports: ExpertPorts) -> ExchangeTime:
    """Return the time of the library's own all-to-alls: of counts, of tokens a copy an expert, of results."""
    copies = exchange.tokens * exchange.topk * exchange.imbalance
    dispatch, combine = (int(copies * exchange.nbytes(phase)) for phase in PHASES)
    counts, sent, returned = (
        _all_to_all(library, nbytes) for nbytes in (COUNT_BYTES * exchange.experts, dispatch, combine)
    )
    moved = dispatch + combine
    inside = moved * (1 / ports.nodes - 1 / ports.ranks)
    return ExchangeTime(OWN, counts, sent, returned, inside, moved * (1 - 1 / ports.nodes))


def _all_to_all(library: Library, nbytes: int) -> TimeBand:
    made = answer(library, Collective("all_to_all", library.ranks, nbytes))
    return TimeBand(made.time_lo_s, made.time_s, made.time_hi_s)
