"""Predictions against published sweeps of layouts."""

from statistics import median

import pytest

from ringside.validation.published.training import aleph_alpha, ultrascale


@pytest.mark.slow
def test_steps_follow_from_one_with_another_pipeline() -> None:
    rows = aleph_alpha.judged()
    assert len(rows) == 74
    assert median(abs(row.error) for row in rows) <= 0.04
    assert median(abs(row.error) for row in rows) < median(abs(row.rule_error) for row in rows)


@pytest.mark.slow
def test_what_ran_out_of_memory_is_rarely_said_to_fit_and_what_ran_mostly() -> None:
    ran_out, ran, fit = aleph_alpha.counted()
    assert (ran_out.of, ran.of, fit.of) == (322, 206, 206)
    assert ran_out.right >= 0.98 * ran_out.of > ran_out.by_rule
    assert ran.right >= 0.95 * ran.of
    assert fit.right >= 0.85 * fit.of


@pytest.mark.slow
def test_the_choice_among_measured_layouts_is_nearly_the_best() -> None:
    (cells,) = ultrascale.counted()
    assert cells.right >= 12
    assert cells.of == 14
    assert cells.right > cells.by_rule


def test_layouts_come_in_the_order_in_which_they_were_measured() -> None:
    pooled, within = ultrascale.correlated()
    assert pooled.spearman > 0.9
    assert within.spearman > 0.85 > within.by_rule


def test_no_model_is_fitted_on_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = ultrascale.fitted("80B")
    slower = tuple(
        run._replace(tokens_per_s_per_gpu=run.tokens_per_s_per_gpu / 10) if run.model == "80B" else run
        for run in ultrascale.runs()
    )
    monkeypatch.setattr(ultrascale, "runs", lambda: slower)
    ultrascale.fitted.cache_clear()
    assert ultrascale.fitted("80B") == fitted


def test_stages_have_layers_by_their_work_and_the_last_the_head() -> None:
    # a head of the work of 4 of 16 layers: half is 10 of 20, and a stage ends behind the layer that is more
    assert ultrascale.cut("1B", 1) == ((16,), 0)
    assert ultrascale.cut("1B", 2) == ((11, 5), 1)
    assert ultrascale.cut("80B", 4) == ((21, 20, 20, 19), 3)
