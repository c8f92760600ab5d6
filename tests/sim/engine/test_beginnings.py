"""Times are invariant: a question takes the same time at any start, beside any other traffic.

Floats resolve a moment after an hour to 4.5e-13 s, after a month to 4.7e-10 s, the only allowed difference.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from math import inf, ulp

import pytest

from ringside.sim.engine import events, fast
from ringside.sim.engine.wiring import SimulatedCollective
from ringside.sim.jit import available
from ringside.sim.network.fifo import _Link
from ringside.sim.network.message import NETWORKS, Message
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.record.distributed import record
from ringside.sim.schedule import Schedule
from ringside.topologies import Topology
from tests.sim.engine.beginnings import DAY, HOUR, MONTH, collective, held_back, question

needs_numba = pytest.mark.skipif(not available(), reason="Numba compiles the fast engine")


def keeps_its_time(seed: int, network: str, *moments: float) -> None:
    asked = question(seed, network)
    expected, _ = asked.seconds(0.0, busy=False)
    for moment in moments:
        for busy in (False, True):
            found, rounding = asked.seconds(moment, busy=busy)
            assert abs(found - expected) <= max(1e-6 * expected, rounding), (seed, moment, busy)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("seed", [*range(10), 80, 275, 492])
def test_a_program_takes_as_long_whenever_it_begins(seed: int, network: str) -> None:
    keeps_its_time(seed, network, random.Random(seed).choice((3600.1, 86399.3)), MONTH)


@pytest.mark.proof
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("seed", range(500))
def test_any_program_takes_as_long_whenever_it_begins(seed: int, network: str) -> None:
    keeps_its_time(seed, network, HOUR, 86399.3, MONTH)


def test_a_reduce_takes_129_microseconds_after_a_month_too() -> None:
    found = []
    for begin_s in (0.0, HOUR, DAY, MONTH):
        libraries = Libraries("ideal", "leaf-spine:4", {}, 16)

        def main(dist, begin_s=begin_s):  # type: ignore[no-untyped-def]
            dist.compute(begin_s)
            dist.reduce(1 << 20, 0)

        program = record(main, 16, libraries.rules)
        found.append(simulate([PlacedProgram(program, tuple(range(16)))], libraries)[0].makespan_s - begin_s)
    assert found == pytest.approx([129.37184e-6] * 4, abs=8 * ulp(MONTH))


def test_ranks_that_do_alike_end_alike_round_after_round() -> None:
    def main(dist):  # type: ignore[no-untyped-def]
        rank = dist.get_rank()
        for _ in range(10):
            dist.compute(2e-3)
            peers = [peer for peer in (rank - 1, rank + 1) if 0 <= peer < 8]
            ways = [dist.P2POp(way, 1 << 22, peer) for peer in peers for way in (dist.isend, dist.irecv)]
            for work in dist.batch_isend_irecv(ways):
                work.wait()

    libraries = Libraries("gloo", "star", {}, 8)
    (found,) = simulate([PlacedProgram(record(main, 8, libraries.rules), tuple(range(8)))], libraries)
    assert {found.times[rank].waiting_s for rank in range(1, 7)} == {0.0}


ENGINES: dict[str, Callable[[Schedule, Topology], SimulatedCollective]] = {
    "simpy": events.simulate,
    "fair": lambda plan, graph: events.simulate(plan, graph, network="fair"),
    "fast": fast.simulate,
}


@needs_numba
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "seed",
    [
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12)),
        *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(12, 500)),
    ],
)
def test_a_collective_that_rested_goes_on_as_at_first(seed: int, engine: str) -> None:
    plan, graph = collective(seed)
    play = ENGINES[engine]
    expected = play(plan, graph).time_s
    for moment in (HOUR, DAY, MONTH):
        late = held_back(plan, moment, graph)
        wait = replace(late, steps=lambda late=late: islice(late.steps(), 1), after={})
        found, waited = play(late, graph).time_s, play(wait, graph).time_s
        assert abs(found - waited - expected) <= max(1e-6 * expected, 8 * ulp(found)), (seed, moment)


@needs_numba
@pytest.mark.parametrize("seed", [*range(12), 19, 42])
def test_what_is_shorter_than_a_moment_can_tell_takes_its_time_on_both_engines(seed: int) -> None:
    # for a month nothing rests, so that all is told from its beginning
    plan, graph = collective(seed)
    late = held_back(plan, MONTH, graph, busy=True)
    assert fast.simulate(late, graph).time_s == events.simulate(late, graph).time_s < 3 * MONTH


def carried(seed: int, moment: float) -> tuple[float, float]:
    """Return the begin and end of each message on each link, since a moment."""
    draw = random.Random(seed)
    link = _Link(draw.choice((1e11, 4e11)), 0.0)
    link.free = begin = moment + draw.choice((0.0, 1e-6))
    changes = draw.randint(0, 3)
    if changes:
        shares = [draw.choice((0.25, 0.5, 0.0)) for _ in range(changes)]
        link.partly = [(begin + 1e-7 * k, link.bandwidth * share) for k, share in enumerate([*shares, 1.0])]
    message = Message((0,), draw.choice((1, 8, 64, 4096)), 0, lambda *_: None)
    message.at, message.rate = moment, draw.choice((inf, 1e9, 1e10, 2e11))
    message.tail = moment + message.nbytes / message.rate
    if message.rate < inf and draw.random() < 0.3:
        half = moment + message.nbytes / message.rate / 2
        message.rates = [(moment, 1.5 * message.rate), (half, message.rate / 2), (message.tail, 0.0)]
        message.rate *= 1.5
    return link.transmit(message) - moment, message.tail - moment


@pytest.mark.parametrize("moment", [HOUR, DAY, MONTH])
def test_a_link_carries_what_is_shorter_than_a_moment_can_tell(moment: float) -> None:
    for seed in range(2000):
        assert carried(seed, moment) == pytest.approx(carried(seed, 0.0), rel=0, abs=8 * ulp(moment)), seed
