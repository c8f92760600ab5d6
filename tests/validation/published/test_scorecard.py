"""The scorecard: which rows a fit may see, what simple rules say, and how rows are summed up."""

from dataclasses import replace

import numpy as np
import pytest

from ringside.validation.nccl.baselines import BASELINES, interpolated, linear_in_log_nodes, tuner
from ringside.validation.nccl.scorecard import (
    ANOTHER,
    Judged,
    judge,
    questions,
    scores,
    site_scores,
    size_class,
)
from ringside.validation.published.calibrations import usable


@pytest.fixture(scope="module")
def asked():
    few = [record for record in usable() if record.cluster in ("abci-v100", "summit-v100")]
    return list(questions(few))


def test_no_row_is_judged_by_a_fit_that_it_took_part_in(asked):
    assert {question.name for question in asked} == {
        "more nodes",
        "every other size",
        "larger sizes",
    }
    for question in asked:
        fitted = {id(row.record) for row in question.fitted}
        assert fitted
        assert question.judged
        assert not fitted & {id(row.record) for row in question.judged}
        if question.name == "more nodes":
            most = max(row.comm.nodes for row in question.fitted)
            assert {row.comm.nodes for row in question.judged} == {most * question.factor}


def test_a_question_is_answered_beside_every_baseline(asked):
    (question,) = [
        one for one in asked if one.machine == "abci-v100" and one.factor == 2 and len(one.fitted) > 50
    ]
    judged = judge(question)
    assert len(judged) == len(question.judged)
    assert all(set(row.baselines) == set(BASELINES) for row in judged)
    assert all(row.lo_s <= row.time_s <= row.hi_s for row in judged)
    found = {(score.group, score.name): score for score in scores(judged)}
    whole = found["question", "more nodes"]
    assert (
        whole.rows == len(judged) == found["machine", "abci-v100"].rows == found["nodes", "2 x as many"].rows
    )
    assert whole.median < min(error for error in whole.baselines.values() if np.isfinite(error))


def test_simple_rules_say_what_they_are_called(asked):
    (question,) = [
        one for one in asked if one.machine == "abci-v100" and one.factor == 2 and len(one.fitted) > 50
    ]
    some = question.judged[:3]
    at = {
        row.comm.nodes: row.record.time_s
        for row in question.fitted
        if row.record.nbytes == some[0].record.nbytes and row.comm.nodes > 1
    }
    assert set(at) == {2, 4}
    assert linear_in_log_nodes(question.fitted, some)[0] == pytest.approx(2 * at[4] - at[2])
    assert np.isnan(interpolated(question.fitted, some)).all()
    own = question.fitted[0]
    assert interpolated(question.fitted, [own])[0] == pytest.approx(own.record.time_s)
    assert (tuner([], some) > 2e-6).all()


def test_sizes_have_their_classes():
    assert [size_class(size) for size in (8, 65536, 65537, 4 << 20, 1 << 26, 1 << 27)] == [
        "to 64 KiB",
        "to 64 KiB",
        "to 4 MiB",
        "to 4 MiB",
        "to 128 MiB",
        "128 MiB and more",
    ]


def test_each_site_counts_once_however_many_rows_it_has(asked):
    record = replace(asked[0].judged[0].record, time_s=1.0)
    rows = [
        Judged(ANOTHER, machine, 1.0, replace(record, site=site, nbytes=nbytes), 1 + error, 0.0, 2.0, {})
        for machine, site, nbytes, errors in (
            ("dgx-a100", "here", 8, [0.1, 0.1, 0.2, 0.1, 0.1]),
            ("dgx-a100", "there", 8, [0.4]),
            ("dgx-h100", "there", 128 << 20, [0.2, -0.2]),
        )
        for error in errors
    ]
    (found,) = site_scores(rows)
    assert (found.name, found.sites) == (ANOTHER, 3)
    assert found.median_of_medians == pytest.approx(0.2)
    assert found.mean_of_medians == pytest.approx(0.7 / 3)
    assert found.large == pytest.approx(0.2)
    assert found.mean == pytest.approx(1.4 / 8)
    assert np.isnan(site_scores(rows[:6])[0].large)
    assert site_scores([]) == []
