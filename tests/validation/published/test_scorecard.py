"""The scorecard: the rows of a fit, simple rules, and summaries of rows."""

import numpy as np
import pytest

from ringside.validation.published.calibrations import usable
from ringside.validation.scorecard.baselines import BASELINES, interpolated, linear_in_log_nodes, tuner
from ringside.validation.scorecard.collectives import (
    ANOTHER,
    collective_scores,
    judge,
    site_scores,
    size_class,
    splits,
)
from ringside.validation.scorecard.explained import log_score
from ringside.validation.scorecard.judged import JudgedRow


@pytest.fixture(scope="module")
def held_out():
    few = [record for record in usable() if record.cluster in ("abci-v100", "summit-v100")]
    return list(splits(few))


def test_no_row_is_judged_by_a_fit_that_it_took_part_in(held_out):
    assert {split.name for split in held_out} == {
        "another machine",
        "more nodes",
        "every other size",
        "larger sizes",
    }
    for split in held_out:
        fitted = {id(row.record) for row in split.fitted}
        assert fitted
        assert split.judged
        assert not fitted & {id(row.record) for row in split.judged}
        if split.name == "more nodes":
            most = max(row.comm.nodes for row in split.fitted)
            assert {row.comm.nodes for row in split.judged} == {most * split.factor}


def test_a_question_is_answered_beside_every_baseline(held_out):
    (split,) = [
        one for one in held_out if one.machine == "abci-v100" and one.factor == 2 and len(one.fitted) > 50
    ]
    judged = judge(split)
    assert len(judged) == len(split.judged)
    assert all(set(row.baselines) == set(BASELINES) for row in judged)
    assert all(row.low <= row.predicted <= row.high for row in judged)
    scores = {(score.group, score.name): score for score in collective_scores(judged)}
    whole = scores["question", "more nodes"]
    same = scores["machine", "abci-v100"], scores["nodes", "2 x as many"]
    assert {whole.errors.rows, *(one.errors.rows for one in same)} == {len(judged)}
    assert whole.errors.median < np.nanmin([rule.median for rule in whole.rules.values()])


def test_simple_rules_say_what_they_are_called(held_out):
    (split,) = [
        one for one in held_out if one.machine == "abci-v100" and one.factor == 2 and len(one.fitted) > 50
    ]
    some = split.judged[:3]
    at = {
        row.comm.nodes: row.record.time_s
        for row in split.fitted
        if row.record.nbytes == some[0].record.nbytes and row.comm.nodes > 1
    }
    assert set(at) == {2, 4}
    assert linear_in_log_nodes(split.fitted, some)[0] == pytest.approx(2 * at[4] - at[2])
    assert np.isnan(interpolated(split.fitted, some)).all()
    own = split.fitted[0]
    assert interpolated(split.fitted, [own])[0] == pytest.approx(own.record.time_s)
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


def test_each_site_counts_once_however_many_rows_it_has():
    rows = [
        JudgedRow(
            machine, "", 1.0, 1 + error, part=ANOTHER, traits={"site": site, "size": size_class(nbytes)}
        )
        for machine, site, nbytes, errors in (
            ("dgx-a100", "here", 8, [0.1, 0.1, 0.2, 0.1, 0.1]),
            ("dgx-a100", "there", 8, [0.4]),
            ("dgx-h100", "there", 128 << 20, [0.2, -0.2]),
        )
        for error in errors
    ]
    (site,) = site_scores(rows)
    assert (site.name, site.sites) == (ANOTHER, 3)
    assert site.median_of_medians == pytest.approx(0.2)
    assert site.mean_of_medians == pytest.approx(0.7 / 3)
    assert site.large == pytest.approx(0.2)
    assert site.mean == pytest.approx(1.4 / 8)
    assert np.isnan(site_scores(rows[:6])[0].large)
    assert site_scores([]) == []


def test_the_coverage_of_a_machine_with_three_sites_counts_each_site_once():
    rows = [
        JudgedRow(
            "dgx-b200", "", 1.0, 1.1, part=ANOTHER, low=low, high=1.2,
            traits={"site": site, "size": size_class(8)},
        )
        for site, lows in (("a", [0.9] * 97), ("b", [0.9, 1.05]), ("c", [1.05]))
        for low in lows
    ]  # fmt: skip
    both = {site.name: site for site in site_scores(rows)}
    assert list(both) == [ANOTHER, f"{ANOTHER} of dgx-b200"]
    assert [one.inside for one in both.values()] == pytest.approx([(1 + 0.5 + 0) / 3] * 2)
    assert [site.name for site in site_scores(rows[:-1])] == [ANOTHER]


def test_sound_logs_are_given_no_cause_and_slow_ones_are():
    few = [record for record in usable() if record.cluster == "abci-v100" and record.num_nodes in (1, 4)]
    score = log_score(few)
    assert (score.sound, score.blamed, score.slowed, score.caught) == (2, 0, 1, 1)
