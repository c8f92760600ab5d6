"""Predicted peaks of memory beside torch's own accounting of small training jobs."""

import pytest

pytest.importorskip("torch")
from ringside.real.training.memory import MeasuredPeak, MemoryJob
from ringside.sim.training.fsdp_policy import FLAT
from ringside.sim.training.program import Writing
from ringside.validation.cases import only
from ringside.validation.training.memory import ComparedPeak, compare_peak, parallel_job
from ringside.validation.training.memory_plan import CASES, SHORT, checks, judge


def judged(cases):
    found = []
    judge(cases, lambda _, one: found.append(one))
    return found


@pytest.mark.slow
def test_peaks_of_ranks_alone_are_within_one_per_cent():
    for one in (rank for peaks in judged(SHORT) for rank in peaks.ranks):
        assert abs(one.error) < 0.01
        for kind in ("parameters", "optimizer"):
            assert one.predicted[kind] == pytest.approx(one.measured[kind], rel=1e-3)


@pytest.mark.proof
def test_all_peaks_are_within_their_limits():
    assert [check for check in checks(judged(CASES)) if not check.passed] == []


def test_an_error_is_of_the_sums_and_kinds_are_summed():
    job = MemoryJob(shard=2)
    measured = MeasuredPeak({"parameters": 100, "activations": 30, "temporaries": 12}, "aten.mm")
    compared = compare_peak(job, 0, measured)
    assert compared.measured == {"parameters": 100, "activations": 42}
    assert compared.error == sum(compared.predicted.values()) / 142 - 1
    assert ComparedPeak(0, {"a": 3}, {"a": 4}, "", "").error == -0.25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_laid_out_over_its_own_ranks(case):
    laid_out = parallel_job(case.job)
    assert laid_out.mesh == case.job.mesh
    assert laid_out.micro_batches == case.job.micro_batches


def test_fsdp_gathers_the_next_unit_of_backward_after_the_loss():
    operations = Writing(parallel_job(MemoryJob(shard=2))).operations(0)
    names = [one.name for one in operations]
    losses = [place for place, name in enumerate(names) if name == "head loss, micro-batch 0"]
    gathers = [place for place, name in enumerate(names) if name == "copy-in of layer 1"]
    assert len(losses) == len(gathers) == 2, "one forward, one backward"
    assert gathers[0] < losses[0] < losses[1] < gathers[1]
    buffers = sum(nbytes for one in operations[: losses[0]] for pool, nbytes in one.memory if pool == FLAT)
    assert buffers == 0, "forward's last buffer goes with the model's output"


def test_an_unknown_case_names_the_nearest():
    with pytest.raises(ValueError, match="'fdsp' is not a case of this plan; write"):
        only(CASES, ["fdsp"])
