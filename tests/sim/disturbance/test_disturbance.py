"""Disturbances against order statistics, renewal theory and plain arithmetic."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.collective import Collective
from ringside.sim.disturbance import (
    Disturbance,
    Draw,
    Drawn,
    Empirical,
    Lognormal,
    OsNoise,
    Outcome,
    SlowLink,
    study,
)
from ringside.sim.disturbance.study import collective_once, libraries_under, library_under
from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.library import ROUNDING
from ringside.sim.program import Call, Compute, Group, Operation, Program
from ringside.sim.program.groups import TimedGroup, play_in_group, process_group
from ringside.sim.program.jobs import PlacedProgram, play
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.timeline import timeline, waits
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.simulate import simulate_disturbed, simulate_step
from ringside.sim.workload.workload import Layer, Tensor, Workload
from ringside.topologies import star

RANKS = 4
NETWORK = star(RANKS, bandwidth=1e9, latency=1e-5)
ONE_LAYER = Workload(
    name="one layer", parameters=(Tensor("weight", 2**18),), layers=(Layer("layer", (0,), 0.0, 0.1),)
)


def step(ranks: int, draw: Draw, group: TimedGroup | None = None) -> Outcome:
    """Simulate a step of one layer whose gradients are summed in no time."""
    group = group or TimedGroup(ranks, lambda _: 0.0)
    simulation = simulate_disturbed(ONE_LAYER, group, DataParallel(), Costs(), draw)
    return Outcome(simulation.makespan_s, waits(simulation))


def expected_maximum(sigma: float, count: int) -> float:
    """Return the mean of the largest of ``count`` lognormal factors, by integration."""
    normal = NormalDist()
    points = np.linspace(0.0, math.exp(6 * sigma), 20001)
    below = np.array([normal.cdf(math.log(point) / sigma) if point else 0.0 for point in points])
    return float(np.trapezoid(1 - below**count, points))


def test_the_mean_of_the_slowest_of_n_ranks_is_that_of_order_statistics() -> None:
    sigma, draws = 0.2, 400
    means = []
    for ranks in (1, 2, 4, 16):
        jitter = Disturbance(jitter=Lognormal(sigma))
        found = study(jitter, lambda draw, n=ranks: step(n, draw), 0.1, draws=draws, seed=7)
        error = np.std(found.times_s) / math.sqrt(draws)
        assert found.mean_s == pytest.approx(0.1 * expected_maximum(sigma, ranks), abs=4 * error)
        means.append(found.mean_s)
    assert means == sorted(means)


@given(
    slow=st.floats(1.0, 3.0), sigma=st.floats(0.01, 0.5), late=st.floats(0.0, 0.2), seed=st.integers(0, 1000)
)
@settings(max_examples=20)
def test_a_step_takes_as_long_as_its_slowest_rank(slow: float, sigma: float, late: float, seed: int) -> None:
    disturbance = Disturbance(slow_ranks={1: slow}, jitter=Lognormal(sigma), late={2: late})
    draw = Draw(disturbance, seed, 0)
    alone = [draw.seconds(rank, [0.1])[0] + (late if rank == 2 else 0.0) for rank in range(RANKS)]
    assert step(RANKS, draw).seconds == pytest.approx(max(alone))


def test_nothing_left_to_chance_is_drawn_once_and_the_same_seed_draws_the_same() -> None:
    calm = study(Disturbance(slow_ranks={1: 2.0}), lambda draw: step(RANKS, draw), 0.1, draws=50)
    assert calm.times_s == (pytest.approx(0.2),)
    assert calm.blamed == {1: pytest.approx(0.3)}
    jitter = Disturbance(jitter=Lognormal(0.1))
    first, again, other = (
        study(jitter, lambda draw: step(RANKS, draw), 0.1, draws=20, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.times_s != other.times_s


def test_a_disturbance_of_nothing_leaves_the_step_as_it_is() -> None:
    group = process_group(find_library("gloo", NETWORK))
    undisturbed = simulate_step(ONE_LAYER, group).step_s
    draw = Draw(Disturbance(slow_ranks={0: 1.0}, late={0: 0.0}), 0, 0)
    found = simulate_disturbed(ONE_LAYER, group, DataParallel(), Costs(), draw)
    assert found.makespan_s == pytest.approx(undisturbed, rel=ROUNDING)


def test_noise_lengthens_work_by_what_it_takes_of_a_period() -> None:
    noise = OsNoise(1e-3, 1e-4)
    seconds = noise.longer(np.random.default_rng(0), np.full(20000, 0.01))
    assert np.mean(seconds) == pytest.approx(0.01 / (1 - 0.1), rel=1e-3)
    assert np.max(seconds) - np.min(seconds) == pytest.approx(1e-4)


def test_measured_factors_are_drawn_as_they_are() -> None:
    factors = Empirical((0.9, 1.0, 1.4), "here").factors(np.random.default_rng(0), 1000)
    assert set(factors.tolist()) == {0.9, 1.0, 1.4}


def test_a_slow_link_is_one_cable_or_one_direction_of_it() -> None:
    both = Disturbance(slow_links=(SlowLink("gpu1", "switch", 4.0),)).links(NETWORK)
    one = Disturbance(slow_links=(SlowLink("gpu1", "switch", 4.0, both=False),)).links(NETWORK)
    assert both.edges["gpu1", "switch"]["bandwidth"] == both.edges["switch", "gpu1"]["bandwidth"] == 0.25e9
    assert one.edges["switch", "gpu1"]["bandwidth"] == NETWORK.edges["gpu1", "switch"]["bandwidth"] == 1e9
    with pytest.raises(ValueError, match="has no link gpu1-gpu2; write another, such as switch-gpu1"):
        Disturbance(slow_links=(SlowLink("gpu1", "gpu2", 4.0),)).links(NETWORK)
    with pytest.raises(ValueError, match="slow twice"):
        Disturbance(slow_links=(SlowLink("a", "b", 2.0), SlowLink("b", "a", 2.0, both=False)))


@pytest.mark.parametrize("library", ["ideal", "gloo"])
def test_a_ring_is_as_slow_as_its_slowest_link_by_both_engines(library: str) -> None:
    found = find_library(library, star(RANKS, bandwidth=1e9, latency=0.0))
    collective = Collective("all_reduce", RANKS, 2**22)
    ring = found.choose(collective) if library == "gloo" else None
    candidate = ring or type(found.candidates(collective)[0])("ring")
    undisturbed = found.time(collective, candidate).time_s
    draw = Draw(Disturbance(slow_links=(SlowLink("gpu1", "switch", 3.0),)), 0, 0)
    times = [
        collective_once(found, collective, candidate, engine, draw).seconds for engine in ("simpy", "auto")
    ]
    assert times[0] == times[1] == pytest.approx(3 * undisturbed, rel=0.1)
    slow_rank = Draw(Disturbance(slow_ranks={1: 3.0}), 0, 0)
    assert collective_once(found, collective, candidate, "auto", slow_rank).seconds == times[0]


def test_a_late_rank_keeps_the_others_waiting() -> None:
    found = find_library("ideal", NETWORK, options=None)
    collective = Collective("all_reduce", RANKS, 2**20)
    candidate = found.choose(collective)
    undisturbed = found.time(collective, candidate).time_s
    outcome = collective_once(found, collective, candidate, "auto", Draw(Disturbance(late={2: 0.5}), 0, 0))
    assert 0.5 < outcome.seconds <= 0.5 + undisturbed * (1 + ROUNDING)
    assert outcome.waits == {(rank, 2): 0.5 for rank in (0, 1, 3)}
    none_late = collective_once(found, collective, candidate, "auto", Draw(Disturbance(late={2: 0.0}), 0, 0))
    assert none_late.seconds == pytest.approx(undisturbed)


def test_the_timeline_says_for_whom_a_rank_waits() -> None:
    group = Group("all", (0, 1), "nccl", 1)
    call = Operation(
        Call(group, "all_reduce", Collective("all_reduce", 2, 8)), None, (0,), True, "sum", "sum"
    )
    program = Program("two", 2, lambda _: (Operation(Compute(1.0), "compute", category="compute"), call))

    draw = Draw(Disturbance(slow_ranks={1: 2.0}), 0, 0)
    found = timeline(play_in_group(draw.program(program), TimedGroup(2, lambda _: 0.25)))
    assert found.makespan_s == 2.25
    (waiting,) = [span for span in found.spans[0] if span.waits_for is not None]
    assert (waiting.waits_for, waiting.start - waiting.begin) == (1, 1.0)
    assert '"waits_for_rank":1' in found.dumps()
    assert all(span.waits_for is None for span in found.spans[1])


def test_a_late_rank_of_a_program_begins_late() -> None:
    libraries = Libraries.on("gloo", NETWORK, RANKS)
    group = Group("all", tuple(range(RANKS)), "gloo", 2)
    call = Operation(
        Call(group, "all_reduce", Collective("all_reduce", RANKS, 2**20)), None, (), True, "sum", "sum"
    )
    program = Program("one sum", RANKS, lambda _: (call,))
    job = PlacedProgram(program, tuple(range(RANKS)))
    (calm,) = play([job], libraries)
    (late,) = play([job], libraries, late={3: 0.2})
    assert 0.2 < late.makespan_s <= 0.2 + calm.makespan_s * 1.01
    assert late.begin[3] == [0.2]


def test_whose_times_have_no_links_refuses_them() -> None:
    slow = Disturbance(slow_links=(SlowLink("gpu1", "switch", 4.0),))
    nccl = find_library("nccl", "dgx-h100:2")
    with pytest.raises(ValueError, match="write --library ideal or gloo"):
        library_under(nccl, slow)
    with pytest.raises(ValueError, match="write --library ideal or gloo"):
        libraries_under(Libraries("nccl", "dgx-h100:2", {}, 16), slow)
    collective = Collective("all_reduce", 16, 2**20)
    with pytest.raises(ValueError, match="write --library ideal or gloo"):
        collective_once(nccl, collective, nccl.choose(collective), "auto", Draw(slow, 0, 0))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Lognormal(0.0), "lognormal:0.1"),
        (lambda: Lognormal(math.nan), "lognormal:0.1"),
        (lambda: Empirical((1.0,), "file"), "needs two factors"),
        (lambda: OsNoise(1e-3, 1e-3), "1ms=25us"),
        (lambda: SlowLink("a", "b", 0.0), "write 0.000001 to 1,000,000"),
        (lambda: Disturbance(slow_ranks={0: math.inf}), "write 0.000001 to 1,000,000"),
        (lambda: Disturbance(late={0: -1.0}), "write 0 to"),
        (lambda: Disturbance(late={9: 1.0}).check_ranks(4), "rank 9 is late; allowed: ranks 0 to 3"),
        (lambda: study(Disturbance(), lambda _: Outcome(0.0, {}), 0.0, draws=0), "write 1 to 100,000"),
        (lambda: study(Disturbance(), lambda _: Outcome(0.0, {}), 0.0, draws=1, seed=-1), "write 0 or more"),
    ],
)
def test_what_cannot_be_is_refused(wrong: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        wrong()  # type: ignore[operator]


def test_the_typical_draw_is_nearest_to_the_median() -> None:
    assert Drawn(1.0, (1.0, 9.0, 2.2, 2.05, 3.0), 0).typical == 2
