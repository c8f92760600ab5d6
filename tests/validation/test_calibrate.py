import random
from dataclasses import replace

import pytest

from ringside.sim.collective import Collective
from ringside.sim.engine import model
from ringside.sim.libraries import gloo
from ringside.sim.parameters import Parameters
from ringside.sim.record import RecordError
from ringside.validation.calibrate import calibrate, report
from ringside.validation.compare import compare, summaries
from ringside.validation.rows import rows
from tests.made_up import RECORD

TRUE = Parameters(alpha=30e-6, beta=1 / 5e9, gamma=0.1e-9, launch=50e-6)


def record(algorithm, ranks, nbytes, time_s, library="ideal", **changes):
    of = {"library": library, "algorithm": algorithm, "ranks": ranks, **changes}
    return replace(RECORD, nbytes=nbytes, time_s=time_s, **of)


def exact(algorithm, ranks, nbytes, truth=TRUE):
    (row,) = rows([record(algorithm, ranks, nbytes, 1.0)], "star", {})
    return record(algorithm, ranks, nbytes, row.time(truth))


SIZES = [2**k for k in range(12, 25, 2)]


def test_ring_parameters_are_found_again_from_two_rank_counts():
    truth = replace(TRUE, gamma=0.0)
    found = calibrate([exact("ring", n, s, truth) for n in (2, 8) for s in SIZES], "star")
    fit = found.fit_for("ideal", "ring", "auto")
    assert fit.parameters.alpha == pytest.approx(truth.alpha, rel=1e-3)
    assert fit.parameters.beta == pytest.approx(truth.beta, rel=1e-3)
    assert fit.parameters.launch == pytest.approx(truth.launch, rel=1e-3)
    assert "cannot distinguish it from" in fit.fixed["gamma"]
    assert fit.median_error < 1e-6


def test_one_rank_count_cannot_tell_launch_from_alpha_and_says_so():
    found = calibrate([exact("ring", 4, s) for s in SIZES], "star")
    fit = found.fit_for("ideal", "ring", "auto")
    assert set(fit.fixed) == {"launch", "gamma"}
    assert fit.p90_error < 1e-6
    assert "fixed: these rows cannot distinguish it from alpha and beta" in report(found)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["tree", "double_binary_tree"])
def test_a_pipeline_is_fitted_through_the_simulator(algorithm):
    truth = replace(TRUE, gamma=0.0, launch=0.0)
    found = calibrate([exact(algorithm, n, s, truth) for n in (2, 4, 5) for s in SIZES], "star")
    fit = found.fit_for("ideal", algorithm, "auto")
    assert fit.parameters.alpha == pytest.approx(truth.alpha, rel=0.05)
    assert fit.parameters.beta == pytest.approx(truth.beta, rel=0.02)
    assert fit.p90_error < 0.02


def test_an_outlier_and_noise_hardly_move_the_fit_and_the_interval_holds_the_truth():
    draw = random.Random(1)
    noisy = [exact("ring", n, s) for n in (2, 4, 8) for s in SIZES]
    noisy = [replace(r, time_s=r.time_s * draw.gauss(1, 0.03)) for r in noisy]
    noisy[5] = replace(noisy[5], time_s=noisy[5].time_s * 4)
    fit = calibrate(noisy, "star").fit_for("ideal", "ring", "auto")
    known = TRUE.beta + TRUE.gamma / 2
    assert fit.parameters.beta == pytest.approx(known, rel=0.04)
    low, high = fit.interval["beta"]
    assert low < known < high


def test_zero_time_in_a_parameter_is_at_the_boundary():
    fit = calibrate([exact("ring", 4, s, replace(TRUE, alpha=0.0, launch=0.0)) for s in SIZES], "star")
    text = report(fit)
    assert "(at boundary)" in text


def test_fitted_and_held_out_rows_are_never_mixed():
    both = [exact("ring", 4, s) for s in SIZES]
    calibration = calibrate(both[::2], "star")
    stranger = record("tree", 4, 4096, 1e-3)
    compared = compare([*both, stranger], "star", calibration=calibration)
    assert [row.set for row in compared[:-1]] == ["fitted", "held_out"] * 3 + ["fitted"]
    assert compared[-1].set == "unfitted"
    sums = summaries(compared)
    assert {name: s.rows for name, s in sums.items()} == {"fitted": 4, "held_out": 3, "unfitted": 1}
    assert sums["held_out"].worst_error < 1e-6


def test_clusters_are_not_mixed_and_sites_only_on_request():
    both = [exact("ring", 4, s) for s in SIZES]
    other = [replace(r, cluster="d") for r in both[:1]]
    with pytest.raises(RecordError, match="several clusters cannot be mixed: c, d"):
        calibrate([*both, *other], "star")
    sited = [replace(r, site=site) for r, site in zip(both, "abababa", strict=True)]
    with pytest.raises(RecordError, match="--pool-sites"):
        calibrate(sited, "star")
    assert calibrate(sited, "star", pool_sites=True).fits[0].rows == len(sited)


def test_records_of_one_machine_are_refused_on_another():
    foreign = [replace(exact("ring", 4, s), cluster="dgx-a100") for s in SIZES]
    with pytest.raises(RecordError, match="write --cluster dgx-a100"):
        calibrate(foreign, "dgx-h100")


def test_the_libraries_own_collective_is_fitted_by_its_own_schedule():
    truth = replace(TRUE, gamma=0.0, launch=0.0)

    def own(nbytes):
        (row,) = rows([record("auto", 2, nbytes, 1.0, library="gloo")], "star", {})
        assert row.schedule.credits == gloo.schedule(Collective("all_reduce", 2, nbytes)).credits
        return record("auto", 2, nbytes, row.time(truth), library="gloo")

    fit = calibrate([own(s) for s in SIZES], "star").fit_for("gloo", "auto", "auto")
    assert fit.parameters.beta == pytest.approx(truth.beta, rel=0.02)


def test_the_closed_form_and_the_simulator_agree_in_a_row():
    (row,) = rows([record("ring", 8, 1 << 20, 1.0)], "star", {})
    closed = model.closed_form("ring", row.schedule.collective, TRUE)
    assert row.time(TRUE) == pytest.approx(closed + TRUE.launch, rel=1e-12)
