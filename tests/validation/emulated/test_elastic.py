"""Elastic runs, predicted from one another."""

from dataclasses import replace

import pytest

from ringside.pictures.measured.elastic import draw_elastic
from ringside.sim.goodput.elastic import ElasticRun, Restarted
from ringside.validation.elastic import compare_runs, predict_run

RESTART = Restarted(
    detect_s=0.1, stop_s=0.1, rendezvous_s=0.3, process_s=0.1, import_s=2.0, init_s=0.3, load_s=0.1
)


def elastic(interval, kill_after_s, steps=100, step_s=0.1, save_s=0.2, start_s=2.4, restart=RESTART):
    """Return the measurements of a run that consists of the given parts."""
    cycle = interval * step_s + save_s
    kept = int(kill_after_s // cycle) * interval
    wasted_s = kill_after_s - kept * step_s - kept / interval * save_s
    saves = -(-steps // interval)
    return ElasticRun(
        ranks=2, interval=interval, steps=steps, checkpoint_bytes=8, kills=((kill_after_s, 1),),
        wall_s=start_s + steps * step_s + saves * save_s + wasted_s + restart.whole_s,
        steps_s=(step_s,) * (steps + int(wasted_s / step_s)), kept_s=steps * step_s,
        saves_s=(save_s,) * saves, first_start_s=start_s, restarts=(restart,), fingerprint={},
    )  # fmt: skip


def test_runs_that_differ_in_the_interval_alone_are_predicted_exactly(tmp_path):
    compared = compare_runs([elastic(interval, 4.03) for interval in (2, 5, 10, 20, 50)])
    for one in compared:
        assert one.error == pytest.approx(0, abs=1e-9)
        assert one.predicted_shares == pytest.approx(one.measured_shares, abs=1e-6)
        assert sum(one.measured_shares.values()) == pytest.approx(1)
    draw_elastic(compared, tmp_path / "e.svg")
    assert "steps between two checkpoints" in (tmp_path / "e.svg").read_text()


def test_a_prediction_knows_nothing_of_its_own_run_but_interval_and_kills():
    others = [elastic(5, 4.0), elastic(10, 4.0)]
    strange = replace(elastic(20, 4.0), wall_s=999.0, steps_s=(9.0,), saves_s=(9.0,), first_start_s=9.0)
    assert predict_run(strange, others) == predict_run(elastic(20, 4.0), others)


def test_one_run_or_runs_without_a_kill_predict_nothing():
    with pytest.raises(ValueError, match="measure two or more"):
        compare_runs([elastic(5, 4.0)])
    calm = replace(elastic(5, 4.0), restarts=(), kills=())
    with pytest.raises(ValueError, match="measure runs with kills"):
        compare_runs([calm, calm])
