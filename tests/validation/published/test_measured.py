"""NCCL's measured model on held-out published rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ringside.validation.published
from ringside.validation.nccl.fit import EARLY, fit
from ringside.validation.nccl.observed import choose, observed
from ringside.validation.readers import read

FILES = Path(ringside.validation.published.__file__).parent


def rows(machine, *patterns):
    files = [file for pattern in patterns for file in sorted(FILES.glob(f"{pattern}.json"))]
    assert len(files) >= len(patterns)
    return observed([record for file in files for record in read(file).records], machine, {})


def judged(found, kept_back):
    """Return absolute relative errors, and the share of rows in their interval."""
    chosen = choose(kept_back, found.model.facts)
    answer = found.model.predict(chosen.tasks)
    seconds = np.array([kept_back[place].record.time_s for place in chosen.kept])
    inside = (answer.lo_s <= seconds) & (seconds <= answer.hi_s)
    return np.abs(answer.time_s / seconds - 1), inside.mean()


FOLDS = {
    "abci-v100": ("abci2_v100_all_reduce_n{}_*", (1, 2, 4), (8,), 0.04),
    "abci-a100": ("abci2_a100_all_reduce_n{}_*", (1, 2), (4,), 0.1),
    "alps-gh200": ("alps_gh200_aws1130_all_reduce_n{}_*", (1, 2, 4), (8,), 0.05),
    "mn5-h100": ("mn5_h100_all_reduce_n{}_*", (4, 8), (16,), 0.18),
}


@pytest.mark.parametrize("machine", FOLDS)
def test_more_nodes_than_were_fitted_are_predicted(machine):
    pattern, fitted, kept_back, most = FOLDS[machine]
    found = fit(rows(machine, *(pattern.format(nodes) for nodes in fitted)))
    errors, inside = judged(found, rows(machine, *(pattern.format(nodes) for nodes in kept_back)))
    assert np.median(errors) < most
    assert inside >= 0.65


def test_every_other_size_tells_the_ones_between():
    medians, covered = [], []
    for machine, pattern in (("abci-a100", "abci2_a100_all_reduce_n4_*"), ("dgx-h100", "together_h100*ring"),
                             ("dgx-a100", "oke_*"), ("rtx4090-pcie", "rtx*")):  # fmt: skip
        run = rows(machine, pattern)
        errors, inside = judged(fit(run[::2]), run[1::2])
        medians.append(np.median(errors))
        covered.append(inside)
    assert np.mean(medians) < 0.025
    assert np.mean(covered) > 0.65


def test_alps_has_more_channels_than_its_graphs_and_no_ll128_between_nodes_as_its_times_betray():
    found = fit(rows("alps-gh200", "alps_gh200_aws1130_all_reduce_n*"))
    assert found.model.facts.ll128 is False
    assert found.model.facts.channels > found.rows[-1].comm.channels


def test_a_site_that_names_no_release_is_dated_by_its_times():
    old, new = rows("dgx-a100", "superbench*"), rows("dgx-a100", "aiconfigurator_a100*")
    found = fit(old + new, pooled=True)
    assert {row.comm.settings.version for row in found.rows if row.record.site == "superbench"} == {EARLY}
    unnamed = [replace(row, record=replace(row.record, library_version="")) for row in new]
    found = fit(old + unnamed, pooled=True)
    assert {row.comm.settings.version for row in found.rows if row.record.site != "superbench"} != {EARLY}


@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0])
def test_one_slow_site_hardly_moves_the_machine(factor):
    run = rows("dgx-a100", "aiconfigurator_a100_n1_r8_all_reduce*")

    def at(site, factor):
        records = [replace(row.record, site=site, time_s=factor * row.record.time_s) for row in run]
        return [
            replace(row, record=record, run=(site, row.run)) for row, record in zip(run, records, strict=True)
        ]

    def predicted(factor):
        sites = [*at("first", 1.0), *at("second", 1.0), *at("third", 1.0), *at("fourth", factor)]
        model = fit(sites, pooled=True).model
        return model.predict(choose(run, model.facts).tasks).time_s

    assert np.median(predicted(factor) / predicted(1.0)) < 1.05


def test_the_answer_does_not_depend_on_the_order_of_the_rows():
    run = rows("abci-v100", "abci2_v100_all_reduce_n2_*", "abci2_v100_all_reduce_n1_*")
    there, back = fit(run), fit(run[::-1])
    for name, value in there.model.values.items():
        assert back.model.values[name] == pytest.approx(value, rel=0.02), name


def test_all_gather_at_more_nodes_follows_from_all_reduce_and_fewer():
    fitted = rows("polaris-a100", "polaris_all_reduce_*_set5*", "polaris_all_gather_n2_*_set5*")
    errors, _ = judged(fit(fitted), rows("polaris-a100", "polaris_all_gather_n8_*_set5*"))
    assert np.median(errors) < 0.2
