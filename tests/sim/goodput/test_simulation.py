"""Simulated lives: against the exact expectation, and by the rules of nodes, spares and replicas."""

from dataclasses import replace
from itertools import repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ringside.sim.goodput.formulas import best_interval, expected_goodput
from ringside.sim.goodput.job import DAY_S, Cause, Checkpoints, LongJob, Restart, causes_of_mtbf
from ringside.sim.goodput.published import PUBLISHED
from ringside.sim.goodput.study import (
    PRODUCTIVE,
    RECOVERY,
    SAVE,
    SHRUNK,
    START,
    WASTED,
    Strike,
    around,
    live,
    random_strikes,
    study,
    within99,
)

HOUR = 3600.0
CRASH, LOSS, HANG = Cause("crash", 0.0), Cause("loss", 0.0, loses_node=True), Cause("hang", 0.0, hangs=True)
RESTART = Restart(
    detect_s=1.0, timeout_s=100.0, stop_s=2.0, rendezvous_s=3.0, start_s=10.0, load_s=5.0, last_call_s=30.0,
    repair_s=1000.0,
)  # fmt: skip


def job(**more):
    words = {
        "nodes": 4, "causes": (CRASH, LOSS, HANG), "work_s": 1000.0, "restart": RESTART,
        "checkpoints": Checkpoints(write_s=4.0),
    }  # fmt: skip
    return LongJob(**{**words, **more})


def spent(life):
    assert sum(life.spent_s.values()) == pytest.approx(life.wall_s)
    return life.spent_s


@pytest.mark.parametrize(
    ("mtbf_h", "off", "persist"),
    [(1.0, 1.0, 0.0), (1.0, 3.0, 120.0), (8.0, 0.5, 0.0), (8.0, 1.0, 120.0), (8.0, 3.0, 0.0)],
)
def test_simulation_and_exact_expectation_agree_within_one_percent(mtbf_h, off, persist):
    causes = causes_of_mtbf(mtbf_h * HOUR, 16)
    one = LongJob(
        nodes=16, causes=causes, work_s=200 * mtbf_h * HOUR, restart=Restart(start_s=300.0, load_s=60.0),
        checkpoints=Checkpoints(write_s=60.0, persist_s=persist),
    )  # fmt: skip
    found = study(one, off * best_interval(one), trials=25, seed=2)
    assert found.simulated == pytest.approx(found.expected, rel=0.01)
    assert found.low99 <= found.simulated <= found.high99
    assert found.p5 <= found.p50 <= found.p95


@pytest.mark.parametrize("trials", [10, 11, 40, 1000, 100_000])
def test_an_interval_of_few_lives_is_as_wide_as_students(trials):
    assert within99(trials) == pytest.approx(stats.t.ppf(0.995, trials - 1), rel=1e-3)


def test_causes_that_are_noticed_differently_agree_too():
    rate = 1 / (4 * HOUR) / 16 / 2
    causes = (Cause("crash", rate), Cause("hang", rate, hangs=True))
    one = LongJob(
        nodes=16, causes=causes, work_s=800 * HOUR, checkpoints=Checkpoints(write_s=30.0), restart=Restart()
    )
    found = study(one, best_interval(one), trials=25)
    assert found.simulated == pytest.approx(found.expected, rel=0.01)
    assert found.failures["crash"] == pytest.approx(found.failures["hang"], rel=0.1)
    assert found.lost_s["hang"] > found.lost_s["crash"] + 500 * found.failures["hang"]


def test_llamas_own_failures_leave_more_than_ninety_percent():
    one = PUBLISHED["llama3-405b"].job
    found = study(one, best_interval(one), trials=10)
    assert sum(found.failures.values()) == pytest.approx(466 * found.wall_s / (54 * DAY_S), rel=0.05)
    assert 0.90 < found.low99 < found.high99 < 0.95
    assert found.expected == pytest.approx(found.simulated, rel=0.01)


def test_an_undisturbed_life_trains_saves_and_starts():
    found = spent(live(job(), 300.0, []))
    assert (found[PRODUCTIVE], found[SAVE], found[START]) == (1000.0, 4 * 4.0, 10.0)
    assert sum(found.values()) == 1026.0


def test_a_crash_costs_the_way_back_to_the_last_checkpoint_and_a_restart():
    life = live(job(), 300.0, [Strike(10 + 304 + 100, CRASH)])
    found = spent(life)
    assert found[WASTED] == pytest.approx(100.0)
    assert found[RECOVERY] == 1 + 2 + 3
    assert found[START] == 20
    assert life.failures["crash"] == 1
    assert life.lost_s["crash"] == pytest.approx(100 + RESTART.whole_s(CRASH))


def test_an_asynchronous_checkpoint_is_of_no_use_before_it_is_persisted():
    late = job(checkpoints=Checkpoints(write_s=4.0, persist_s=50.0))
    early = spent(live(late, 300.0, [Strike(10 + 304 + 49, CRASH)]))
    after = spent(live(late, 300.0, [Strike(10 + 304 + 51, CRASH)]))
    assert early[WASTED] == pytest.approx(304 + 49)
    assert after[WASTED] == pytest.approx(51)


def test_a_hang_is_noticed_by_the_time_out_only():
    quick, slow = (live(job(), 300.0, [Strike(400.0, cause)]).wall_s for cause in (CRASH, HANG))
    assert slow - quick == pytest.approx(RESTART.timeout_s - RESTART.detect_s)


def test_a_failure_in_a_restart_begins_the_restart_anew():
    life = live(job(), 300.0, [Strike(400.0, CRASH), Strike(7.0, CRASH)])
    once = live(job(), 300.0, [Strike(400.0, CRASH)])
    assert life.wall_s == pytest.approx(once.wall_s + 7.0)
    assert life.failures["crash"] == 2


def test_a_lost_node_is_waited_for_unless_one_is_spare():
    strikes = [Strike(400.0, LOSS)]
    alone, spared = (live(job(spares=spares), 300.0, strikes) for spares in (0, 1))
    assert spared.wall_s == live(job(), 300.0, [Strike(400.0, CRASH)]).wall_s
    assert alone.wall_s == pytest.approx(spared.wall_s + RESTART.repair_s - 3.0)
    assert spent(alone)[RECOVERY] == pytest.approx(RESTART.repair_s + 3.0)


def test_replicas_go_on_without_the_one_that_lost_a_node_until_it_is_back():
    life = live(job(replica_nodes=1, work_s=3000.0), 300.0, [Strike(400.0, LOSS)])
    found = spent(life)
    assert found[PRODUCTIVE] == pytest.approx(3000.0)
    assert found[SHRUNK] == pytest.approx(912 / 4, rel=0.1)  # three checkpoints' worth at three quarters
    assert found[START] == 3 * 10  # at first, without the node, with it again
    assert found[RECOVERY] == 1 + 2 + 3 + 30 + 2 + 3
    whole = live(job(work_s=3000.0), 300.0, [Strike(400.0, LOSS)])
    assert life.wall_s < whole.wall_s


def test_a_replica_of_several_nodes_stops_with_one_of_them():
    one, two = (
        spent(live(job(replica_nodes=n, work_s=3000.0), 300.0, [Strike(400.0, LOSS)])) for n in (1, 2)
    )
    assert two[SHRUNK] == pytest.approx(2 * one[SHRUNK], rel=0.01)


def test_nodes_that_are_not_in_the_job_do_not_fail_it():
    elastic = job(replica_nodes=1, work_s=3000.0)
    outside, inside = (
        live(elastic, 300.0, [Strike(400.0, LOSS), Strike(200.0, CRASH, place)]) for place in (0.9, 0.1)
    )
    assert outside.failures["crash"] == 0
    assert inside.failures["crash"] == 1


def test_nothing_fails_while_the_job_waits_for_a_node():
    life = live(job(), 300.0, [Strike(400.0, LOSS), Strike(500.0, CRASH)])
    assert life.failures == {"crash": 0, "loss": 1, "hang": 0}


def test_a_job_that_never_gets_on_is_given_up(monkeypatch):
    monkeypatch.setattr("ringside.sim.goodput.study.MOST_STRIKES", 50)
    with pytest.raises(ValueError, match=r"after 50 failures 0\.0% of the work is done; write"):
        live(job(), 300.0, repeat(Strike(60.0, CRASH)))


def test_a_study_that_would_take_too_long_is_refused_before_it_begins():
    often = LongJob(
        nodes=4, causes=causes_of_mtbf(60.0, 4), work_s=30 * DAY_S, checkpoints=Checkpoints(write_s=1.0)
    )
    with pytest.raises(ValueError, match="write a shorter interval"):
        study(often, 3600.0)


def test_the_same_seed_lives_the_same_lives_and_another_does_not():
    one = PUBLISHED["bloom-176b"].job
    assert study(one, HOUR, trials=10, seed=3) == study(one, HOUR, trials=10, seed=3)
    assert study(one, HOUR, trials=10, seed=3) != study(one, HOUR, trials=10, seed=4)


@settings(max_examples=60)
@given(
    mtbf=st.floats(600.0, 1e5), interval=st.floats(60.0, 5000.0), write=st.floats(0.0, 60.0),
    persist=st.floats(0.0, 60.0), spares=st.integers(0, 4), replica=st.sampled_from([None, 1, 2, 4]),
    lose=st.booleans(), repair=st.floats(0.0, 5000.0), seed=st.integers(0, 99),
)  # fmt: skip
def test_time_is_all_accounted_for_and_all_work_done(
    mtbf, interval, write, persist, spares, replica, lose, repair, seed
):
    one = job(
        causes=(Cause("any", 1 / mtbf / 4, loses_node=lose),), work_s=20_000.0, spares=spares,
        replica_nodes=replica, checkpoints=Checkpoints(write_s=write, persist_s=persist),
        restart=replace(RESTART, repair_s=repair),
    )  # fmt: skip
    if interval < mtbf:
        life = live(one, interval, random_strikes(one, np.random.default_rng(seed)))
        assert life.wall_s == pytest.approx(sum(life.spent_s.values()))
        assert life.spent_s[PRODUCTIVE] == pytest.approx(one.work_s)
        assert min(life.spent_s.values()) >= 0
        assert life.lost_s["any"] <= life.wall_s


@given(best=st.floats(1.0, 1e6), work=st.floats(1.0, 1e7))
def test_the_curve_runs_about_the_best_interval(best, work):
    points = around(job(work_s=work), best)
    assert list(points) == sorted(points)
    assert len(points) == 9


@given(mtbf=st.floats(60.0, 1e6), write=st.floats(0.01, 600.0))
def test_the_curve_ends_before_a_job_gets_nowhere(mtbf, write):
    one = job(causes=causes_of_mtbf(mtbf, 4), work_s=1e6, checkpoints=Checkpoints(write_s=write))
    best = best_interval(one)
    for end in (around(one, best)[0], around(one, best)[-1]):
        assert expected_goodput(one, end) >= expected_goodput(one, best) / 4 * (1 - 1e-9)
