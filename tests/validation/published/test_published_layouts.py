"""Predictions against published sweeps of layouts."""

from dataclasses import replace
from statistics import median

import pytest

from ringside.sim.compute.stacks import find_stack
from ringside.validation.published.training import aleph_alpha, nanotron, ultrascale


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
    cells, extrapolated = ultrascale.counted()
    assert cells.right >= 13
    assert cells.of == 14
    assert cells.right > cells.by_rule
    assert (extrapolated.right, extrapolated.of) == (7, 8)


def test_layouts_come_in_the_order_in_which_they_were_measured() -> None:
    pooled, within, extrapolated = ultrascale.correlated()
    assert pooled.spearman > 0.95
    assert extrapolated.spearman > 0.95
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


def test_any_two_models_imply_the_time_to_launch_a_layer_that_ships() -> None:
    shipped = sum(find_stack("nanotron").launch_s)
    for without in ("", "1B", "3B", "8B"):
        assert ultrascale.launch_s(without) == pytest.approx(shipped, abs=1e-4)


def test_a_step_of_small_layers_takes_as_long_as_to_launch_them() -> None:
    runs = [one for one in ultrascale.runs() if (one.gpus, one.pipeline, one.tensor) == (8, 1, 8)]
    assert len(runs) > 3
    for run in runs:
        free, launched = (
            replace(
                nanotron.training(run.model_text, 8, run.micro_batch), strategy="distributed_optimizer",
                batch=run.micro_batches * run.micro_batch, clip=False, launch_ms=launch_ms,
            ).step().step_s
            for launch_ms in (0.0, None)
        )  # fmt: skip
        assert launched >= free
        assert launched == pytest.approx(run.step_s, rel=0.1)


def test_stages_have_layers_by_their_work_and_the_last_the_head() -> None:
    # a head of the work of 4 of 16 layers: half is 10 of 20, and a stage ends behind the layer that is more
    assert nanotron.cut("1B", 1) == ((16,), 0)
    assert nanotron.cut("1B", 2) == ((11, 5), 1)
    assert nanotron.cut("80B", 4) == ((21, 20, 20, 19), 3)


def test_a_sharded_optimizer_scatters_and_gathers_at_the_measured_bandwidths() -> None:
    run = nanotron.NanotronRun("1B", 512, 256, 2, 1, 1, 1, 1.0)
    alone = nanotron.terms_of(run._replace(gpus=2, replicas=1)).updated_s
    whole, sharded = (nanotron.terms_of(run._replace(zero=zero)).updated_s for zero in (0, 1))
    # on 64 machines 11 GB/s of gathers and scatters, 33 of all-reduces
    assert sharded > 1.5 * whole > 10 * alone


def test_a_groups_bandwidth_is_between_that_of_its_machines_and_of_the_jobs() -> None:
    assert nanotron.group_machines(8, 64) == 1
    assert nanotron.group_machines(16, 2) == 2
    assert nanotron.group_machines(16, 8) == 4
