"""Published peaks of memory: which runs are judged, and how they are summarized."""

from dataclasses import replace

import pytest

from ringside.validation.published.training.megatron_golden import GoldenRun, golden_cases
from ringside.validation.scorecard import memory
from ringside.validation.scorecard.memory import memory_parts, memory_scores, peaks

CASES = {case.arguments.name: case for case in golden_cases()}
PIPELINE = CASES["gpt/gpt3_mcore_te_tp1_pp4_swiglu"]
RELEASE = CASES["gpt/gpt3_15b_8t_release_sm"]
ENCODER = CASES["bert/bert_mcore_tp1_pp2"]


def test_resumed_runs_and_open_kernels_are_not_judged() -> None:
    runs = [run for case in CASES.values() for run in case.runs]
    assert (len(CASES), len(runs)) == (131, 314)
    assert not [run for run in runs if run.name.endswith("2nd")]
    assert {run.gpu for run in runs} == {"a100", "h100", "gb200"}
    assert all(GoldenRun(run.name, run.gpu, run.peak) == run and run.peak > 2**28 for run in runs)


def test_a_case_keeps_every_argument_that_options_read() -> None:
    assert sum(case.arguments.text("--moe-router-topk") == "1" for case in CASES.values()) == 16
    assert sum(case.arguments.has("--tp-comm-overlap") for case in CASES.values()) == 1


def test_a_case_is_the_training_that_it_says() -> None:
    question, missing = PIPELINE.training("gb200")
    assert (question.pp, question.ranks, question.cluster, missing) == (4, 8, "gb200-nvl72:2", [])
    assert question.gpu.name == "gb200"
    first, last = peaks(question)
    assert first > 2**28 < last


def test_what_is_not_judged_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [PIPELINE, replace(PIPELINE, runs=[]), RELEASE, ENCODER]
    monkeypatch.setattr(memory, "golden_cases", lambda: cases)
    monkeypatch.setattr(memory, "_simumax", list)
    monkeypatch.setattr(memory, "peaks", lambda _: (0, round(PIPELINE.runs[0].peak * 0.9)))
    names: list[str] = []
    scored = memory_scores(names.append)
    assert names == memory_parts()
    assert (scored.cases, scored.judged) == (4, 1)
    assert dict(scored.refused) == {
        "no run of it can be judged": 1,
        "the number of GPUs is not stated": 1,
        "pretrain_bert.py trains BERT, and decoders alone are modelled": 1,
    }
    whole, *groups = scored.scores
    assert (whole.score.group, whole.score.errors.rows) == ("megatron", len(PIPELINE.runs))
    assert scored.rows[0].error == pytest.approx(-0.1)
    assert whole.too_low == sum(row.error < -0.05 for row in scored.rows) / len(scored.rows)
    assert {one.score.name for one in groups} >= {"1F1B", "replicated"}


def test_plain_copies_have_no_stages() -> None:
    question, _ = PIPELINE.training("h100")
    with pytest.raises(ValueError, match="no stages; write `strategy` megatron_ddp"):
        peaks(type(question)(model="gpt2", cluster="dgx-h100:1", batch=1))


@pytest.mark.slow
def test_nearly_all_decoders_are_judged() -> None:
    scored = memory_scores()
    assert scored.judged >= 90
    assert len({row.series for row in scored.rows if row.series.startswith("simumax")}) == 2
