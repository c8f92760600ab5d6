"""The zero-bubble paper's pipelines: bubbles to four digits, throughputs within two percent."""

from statistics import median

import pytest

from ringside.validation.published.training.zero_bubble import TABLE, bubble, measured, profiled
from ringside.validation.published.training.zero_bubble.__main__ import main

ROWS = profiled()
SMALL = [row for row in ROWS if row.ranks * row.micro_batches <= 8 * 64]


def test_all_cells_are_there():
    assert len(ROWS) == 12
    assert len(measured()) == 36


@pytest.mark.parametrize("schedule", ["1F1B", "ZB-H1", "ZB-H2"])
@pytest.mark.parametrize("row", SMALL, ids=lambda row: f"{row.model}-{row.micro_batches}")
def test_bubbles_are_the_papers(row, schedule):
    assert round(bubble(schedule, row), 4) == row.bubbles[schedule]


@pytest.mark.proof
@pytest.mark.parametrize("schedule", ["1F1B", "ZB-H1", "ZB-H2"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.model}-{row.micro_batches}")
def test_bubbles_of_many_ranks_are_the_papers(row, schedule):
    assert round(bubble(schedule, row), 4) == row.bubbles[schedule]


@pytest.mark.parametrize("row", SMALL[:4], ids=lambda row: f"{row.model}-{row.micro_batches}")
def test_rules_come_near_what_the_authors_search_for(row):
    assert bubble("ZB-2p", row) == pytest.approx(row.bubbles["ZB-2p"], abs=0.008)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.model}-{row.micro_batches}")
def test_1f1b_has_a_closed_form(row):
    p, m = row.ranks, row.micro_batches
    work = sum(row.times[:3])
    cost = (m + p - 1) * work + (2 * (p - 1) * m / p + 2 * (p - 2)) * row.times.message
    assert round(1 - m * work / cost, 4) == row.bubbles["1F1B"]


@pytest.mark.proof
def test_throughputs_are_within_two_percent(capsys):
    errors = [abs(row.error) for row in TABLE.judged()]
    assert len(errors) == 36
    assert median(errors) < 0.02
    main()
    assert "median of all, 36 rows" in capsys.readouterr().out
