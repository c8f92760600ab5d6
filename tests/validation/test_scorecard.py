"""The scorecard: which rows a fit may see, what simple rules say, and how rows are summed up."""

import numpy as np
import pytest

from validation.measured.baselines import BASELINES, interpolated, linear_in_log_nodes, tuner
from validation.measured.scorecard import judge, questions, scores, size_class
from validation.published.calibrations import usable


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
