import pytest

from ringside.validation.published.training import ddp
from ringside.validation.published.training.ddp.throughput import (
    LOST,
    judge,
    judge_others,
    sources,
    table,
)
from ringside.validation.scorecard.judged import JudgedRow, Score, score


@pytest.fixture(scope="module")
def rows() -> list[JudgedRow]:
    return list(judge())


def limited(rows: list[JudgedRow], limit: str) -> list[JudgedRow]:
    return [row for row in rows if row.part == limit]


def total(rows: list[JudgedRow]) -> Score:
    return score("", "", rows)


def test_cells_are_the_published_ones() -> None:
    cells = {
        (series.id, row.nodes, row.gpus): row.samples_per_s
        for source in sources()
        for series in source.series
        for row in series.rows
    }
    assert cells["resnet50-dgx-a100-amp", 1, 8] == 16621
    assert cells["bert-large-512-dgx-a100-nodes-amp", 32, 256] == 49663
    assert cells["bert-large-512-dgx1-fp32", 1, 8] == 149.6
    assert cells["bert-base-fp32-32-fused-nodes", 4, 32] == 3423.44
    assert cells["vgg16-rtx3090-64", 1, 8] == 634.67
    assert all(source.source and source.notes for source in sources())


@pytest.mark.slow
def test_the_first_row_of_each_series_sets_it_and_nothing_else_does(rows: list[JudgedRow]) -> None:
    series = [series for source in sources() for series in source.series]
    base = limited(rows, "sets compute")
    assert [row.series for row in base] == [one.id for one in series]
    assert [row.measured for row in base] == [one.rows[0].samples_per_s for one in series]
    assert all(abs(row.error) < 1e-5 for row in base)


@pytest.mark.slow
def test_communication_bound_rows_beat_linear_scaling(rows: list[JudgedRow]) -> None:
    bound = limited(rows, "communication")
    assert len(bound) >= 30
    assert all(abs(row.error) < abs(row.rule_error) for row in bound)
    assert total(bound).errors.median < 0.03 < 0.09 < total(bound).rules["naive"].median
    assert abs(total(bound).errors.bias) < 0.02


@pytest.mark.slow
def test_rows_that_lose_little_come_out_on_both_sides(rows: list[JudgedRow]) -> None:
    errors = total(limited(rows, "compute")).errors
    assert errors.rows >= 45
    assert errors.median < 0.015
    assert abs(errors.bias) < 0.01


@pytest.mark.proof
def test_rows_that_lost_much_come_out_well_even_with_those_that_nothing_explains() -> None:
    lost = [row for row in judge_others() if row.rule_error > 0.05 and row.part != "input"]
    assert len(lost) > 50
    assert total(lost).errors.median < 0.05


@pytest.mark.proof
def test_the_spread_of_gpus_is_worth_what_it_costs_on_publications_that_did_not_choose_it() -> None:
    both = judge(0.0), judge_others()
    even, spread = (total(limited(list(judged), "compute")).errors for judged in both)
    assert spread.median < even.median
    assert abs(spread.bias) < abs(even.bias)


@pytest.mark.slow
def test_rows_across_nodes_come_out_within_a_tenth(rows: list[JudgedRow]) -> None:
    across = [row for row in limited(rows, "communication") if row.traits["nodes"] != "1"]
    assert total(across).errors.median < 0.035
    assert sum(abs(row.error) < 0.1 for row in across) >= len(across) - 1


@pytest.mark.slow
def test_mixed_precision_resnet_is_named_as_bound_by_its_input(rows: list[JudgedRow]) -> None:
    named = {(row.series, int(row.traits["gpus"])) for row in limited(rows, "input")}
    assert {(f"resnet50-{machine}-amp", 8) for machine in ("dgx-a100", "dgx1-16gb", "dgx1-32gb")} < named
    assert {("resnet50-mindspore-fp16-256", 8), ("resnet50-mindspore-fp16-256-nodes", 32)} < named
    assert all(series.startswith("resnet50") for series, _ in named)


@pytest.mark.slow
def test_the_table_says_what_sets_what_and_what_nccls_times_rest_on(rows: list[JudgedRow]) -> None:
    text = table(rows)
    assert "first row, which sets only its compute time" in text
    assert "measured on similar machines, or its tuner's estimates" in text
    assert len([line for line in text.splitlines() if not line.startswith("#")]) == len(rows)


@pytest.mark.slow
def test_frameworks_that_hide_nothing_have_a_table_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp, "judge_others", lambda: list(judge()))
    hides, hides_not = ddp.held_out(hides=True), ddp.held_out(hides=False)
    assert (len(hides), len(hides_not)) == (38, 69)
    assert not any("rtx3090" in row.series or "fused" in row.series for row in hides)
    for row in (*hides, *hides_not):
        lost = row.measured <= row.rule * (1 - LOST)
        assert row.part.startswith("lost more") == lost
    assert {row.part for row in hides if not row.series.startswith("resnet50")} == {
        "lost less than 5 %", "lost more",
    }  # fmt: skip
