"""Disturbed steps on an emulated network: the prediction of each case, and its checks."""

from pathlib import Path

import pytest

from ringside.real.ddp.job import DdpJob
from ringside.sim.disturbance import Drawn
from ringside.sim.training.ddp.step import MeasuredNetwork
from ringside.topologies import star
from ringside.topologies.file import dumps
from ringside.validation.cases import only
from ringside.validation.emulated.disturbances import (
    BANDWIDTH,
    CASES,
    MEDIAN,
    P95,
    RANKS,
    ComparedDraws,
    checks,
    predict,
)

WIRES = MeasuredNetwork(topology=dumps(star(RANKS, bandwidth=BANDWIDTH, latency=1e-4)), library="gloo")


def test_each_case_disturbs_the_step_as_its_name_says() -> None:
    found = {case.name: predict(case, WIRES, draws=10) for case in CASES}
    times = {name: one.median_s / one.undisturbed_s for name, one in found.items()}
    assert len({one.undisturbed_s for one in found.values()}) == 1
    assert 1 < times["slow rank 1.2x"] < 1.2
    assert times["slow rank 1.2x"] < times["slow rank 2x"] < 2
    assert 1 < times["slow link 2x"] < 2.01
    assert times["jitter 0.1"] < times["jitter 0.3"] < times["jitter 0.3, slow rank 1.2x"]
    assert len(found["jitter 0.3"].times_s) == 10
    assert len(found["slow rank 2x"].times_s) == 1


def test_a_case_passes_where_median_and_p95_are_near() -> None:
    case = CASES[0]
    measured = tuple(1 + step / 100 for step in range(60))
    same = ComparedDraws(Drawn(1.0, measured, 0), measured)
    assert all(check.error == 0 for check in checks([(case, same)]))
    late = ComparedDraws(Drawn(1.0, tuple(1.05 * one for one in measured), 0), measured)
    median, p95 = checks([(case, late)])
    assert (median.error, p95.error) == (pytest.approx(0.05), pytest.approx(0.05))
    assert (median.passed, p95.passed, median.most, p95.most) == (False, True, MEDIAN, P95)


def test_an_unknown_case_is_refused() -> None:
    assert [case.name for case in only(CASES, ["jitter 0.3"])] == ["jitter 0.3"]
    with pytest.raises(ValueError, match="is not a case of this plan; write one of slow rank"):
        only(CASES, ["storm"])


def test_ranks_are_told_what_disturbs_them(tmp_path: Path) -> None:
    job = DdpJob(slowdown={1: 2.0}, sigma=0.3, seed=5)
    job.write(tmp_path / "job.json")
    read = DdpJob.read(tmp_path / "job.json")
    assert (read.slowdown, read.sigma, read.seed) == ({1: 2.0}, 0.3, 5)
