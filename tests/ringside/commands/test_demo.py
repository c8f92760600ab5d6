"""The demo, end to end."""

import re

import pytest

pytest.importorskip("torch")
from ringside.sim import calibration
from ringside.sim.record import read_lines
from ringside.validation.compare import compare, summaries


@pytest.mark.slow
@pytest.mark.gloo
def test_demo_predicts_what_it_did_not_fit(ringside, tmp_path):
    code, out, err = ringside("demo", "-o", "report")
    assert code == 0, err
    folder = tmp_path / "report"
    assert {file.name for file in folder.iterdir()} == {
        "records.jsonl", "calibration-2-ranks.yaml", "calibration-4-ranks.yaml", "comparison.png",
        "comparison.svg", "report.html",
    }  # fmt: skip
    page = (folder / "report.html").read_text()
    assert page.index('class="headline"') < page.index('class="plotly-graph-div"') < page.index("<table>")
    assert re.search(r"On 2 ranks: predictions are off by [\d.]+% \(median\) on 16 rows held out", page)
    assert page.count('class="plotly-graph-div"') == 2
    assert '<a href="records.jsonl">' in page
    assert "4 ranks share" in err or "ringside:" not in err
    records = [r for r in read_lines((folder / "records.jsonl").read_text(), "") if r.ranks == 2]
    assert len(records) == 36
    found = calibration.read(folder / "calibration-2-ranks.yaml")
    held_out = summaries(compare(records, "star", calibration=found))["held_out"]
    assert held_out.rows == 16
    assert held_out.median_error <= max(0.15, held_out.median_spread)
    assert "held_out: 16 rows" in out
