"""The page that commands write with ``--html``: its content, and its errors."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ringside.commands.compare.command import compared_page, headline
from ringside.report.charts import chart, log_axis, seconds
from ringside.report.comparison import comparison_figures
from ringside.report.page import Page, Table, write_page
from ringside.sim.disturbance import Drawn
from ringside.validation.compare import Compared, summaries
from ringside.validation.emulated.disturbances import ComparedDraws
from ringside.validation.emulated.plan import MIB
from tests.made_up import CELL, record

HOSTILE = "<script>window.ran = 1</script>&\"'${x}{{ 7 * 7 }}"

LOG = Path(__file__).parents[2] / "validation/data/v2.0_all_reduce.log"

BLUE_MACHINE = LOG.read_text(encoding="utf-8").replace("Tesla V100-SXM2-16GB", "NVIDIA B200")


def cells():
    made = replace(CELL, predicted_s=0.101)
    return [made, replace(made, size_bytes=4 * MIB, measured_s=0.39), replace(made, spread=0.3)]


@pytest.fixture
def log(tmp_path):
    (tmp_path / "job.log").write_text(BLUE_MACHINE, encoding="utf-8")


def text_of(page):
    """Return the page's text, without scripts and style."""
    page = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_a_page_has_the_answer_the_files_the_command_and_what_json_says(silently, log):
    out = silently("compare", "job.log", "--json", "--plot", "a b.svg", "--html", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    read = text_of(page)
    assert re.search(r"Predictions are off by [\d.]+% \(median\) on 3 rows held out", read)
    assert "ringside compare job.log --json --plot 'a b.svg' --html page.html".replace("'", "&#39;") in read
    assert '<a href="job.log">job.log</a>' in page
    assert '<a href="a%20b.svg">a b.svg</a>' in page
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=\"(?!data:)", page)
    for row in json.loads(out)["rows"]:
        assert f"&#34;predicted_s&#34;: {row['predicted_s']}" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compare job.log --html page.htm", "not the name of a page; write a name that ends in .html"),
        ("compare job.log --html no/page.html", "no/page.html: cannot be written"),
        ("compare job.html --html job.html", "it is an input"),
        ("train --model gpt2 --cluster star:4 --html page", "ends in .html"),
        ("train --model gpt2 --cluster star:4 --search --html page", "ends in .html"),
        ("train --model gpt2 --cluster star:4 --tp 2 --html page", "ends in .html"),
        ("train --model gpt2 --cluster star:4 --trace x.html --html x.html", "another output has this path"),
        ("validate --html page.pdf", "ends in .html"),
        ("validate ddp --html page.pdf", "ends in .html"),
        ("validate training --html page.pdf", "ends in .html"),
        ("validate disturbances --html no/page.html", "cannot be written"),
        ("scorecard --html page.pdf", "ends in .html"),
        ("scorecard training --html page.pdf", "ends in .html"),
        ("sweep study.yaml -o out --html page.pdf", "ends in .html"),
    ],
)
def test_a_page_that_cannot_be_is_refused_before_any_work(refused, log, tmp_path, words, message):
    (tmp_path / "job.html").write_text(BLUE_MACHINE, encoding="utf-8")
    (tmp_path / "study.yaml").write_text(
        "ask: simulate\noptions: {collective: all_reduce, cluster: star:4}\ngrid: {size: [1]}"
    )
    before = sorted(tmp_path.iterdir())
    err = refused(words)
    assert message in " ".join(err.split())
    assert sorted(tmp_path.iterdir()) == before


def test_names_are_never_markup(tmp_path):
    page = Page(
        title=HOSTILE, headline=HOSTILE, texts={HOSTILE: HOSTILE}, notes=[HOSTILE], raw={"a": HOSTILE},
        tables=[Table(HOSTILE, [(HOSTILE, HOSTILE)], [(HOSTILE,)])],
    )  # fmt: skip
    write_page(page, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "window.ran = 1</script>" not in text
    assert text_of(text).count("&lt;script&gt;window.ran = 1&lt;/script&gt;") == 11
    assert "{{ 7 * 7 }}" in text


def test_what_is_unknown_is_a_dash_and_sorts_by_no_number(tmp_path):
    rows = [
        (None,),
        (float("nan"),),
        (float("inf"),),
        ("-",),
        ("",),
        (True,),
        (12345.6,),
        (0.00123456,),
        (2**20,),
    ]
    write_page(Page(title="t", headline="h", tables=[Table("r", [("x", "")], rows)]), tmp_path / "page.html")
    found = re.findall(r"<td(?: data-order=\"([^\"]*)\")?>([^<]*)</td>", (tmp_path / "page.html").read_text())
    assert found[:5] == [("", "–")] * 5
    assert found[5:] == [
        ("1.0", "yes"), ("12345.6", "12,346"), ("0.00123456", "0.001235"), ("1048576.0", "1,048,576"),
    ]  # fmt: skip


def test_without_rows_held_out_the_headline_speaks_of_what_there_is(tmp_path):
    measured = record(library="gloo", cluster=HOSTILE, nbytes=2**20, time_s=1e-3)
    rows = [Compared(measured, 1.1e-3, 1e-3, 1.2e-3, "fitted")]
    assert "on 1 row that set the parameters" in headline(summaries(rows))
    assert headline({}) == "There are no rows to compare."
    write_page(compared_page(HOSTILE, rows, [], {}), tmp_path / "page.html")
    assert "window.ran = 1</script>" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_validation_leads_with_its_verdict(ringside, monkeypatch, tmp_path):
    monkeypatch.setattr(
        "ringside.validation.emulated.collectives.validate", lambda plan, keep: [*map(keep, cells())]
    )
    ringside("validate", "--html", "page.html")
    read = text_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert re.search(r"[01] of 1 families are within their tolerance; median error [\d.]+%, worst", read)
    assert "interrupted: 3 of" in read


def test_predictions_have_their_bands_and_measured_points_their_spread():
    measured = record(library="gloo", nbytes=2**20, time_s=1e-3, min_s=0.9e-3, p95_s=1.3e-3)
    rows = [
        Compared(replace(measured, nbytes=size), 1.1e-3, 1e-3, 1.2e-3, "fitted") for size in (2**20, 2**21)
    ]
    (figure,) = comparison_figures(rows).values()
    band, _, points, _ = figure.data
    assert (list(band.x), list(band.y)) == ([2**20, 2**21, 2**21, 2**20], [1e-3, 1e-3, 1.2e-3, 1.2e-3])
    assert points.error_y.array == pytest.approx([3e-4] * 2)
    assert points.error_y.arrayminus == pytest.approx([1e-4] * 2)


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([30e-6, 7e-3], ["20 us", "50 us", "100 us", "200 us", "500 us", "1 ms", "2 ms", "5 ms", "10 ms"]),
        ([1e-6, 1], ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"]),
    ],
)
def test_a_logarithmic_axis_is_marked_at_1_2_and_5_where_there_is_room(values, marks):
    assert log_axis(values, seconds)["ticktext"] == marks


def test_a_page_opens_with_its_sentence_and_its_picture_and_folds_its_texts(tmp_path):
    page = Page(
        title="t", headline="h", figures={"f": chart()}, texts={"Fit on 2 ranks": "alpha"}, notes=["n"]
    )
    write_page(page, tmp_path / "page.html")
    body = (tmp_path / "page.html").read_text(encoding="utf-8").partition("<body>")[2]
    order = [body.index(one) for one in ('class="headline"', "<figure>", "<h2>", "<summary>Fit on 2 ranks")]
    assert order == sorted(order)
    assert re.search(r"<details>\s*<summary>Fit on 2 ranks</summary>\s*<pre[^>]*>alpha", body)


def test_a_page_is_whole_or_as_it_was(tmp_path):
    (tmp_path / "page.html").write_text("before")
    with pytest.raises(TypeError):
        write_page(Page(title="t", headline="h", raw={"a": object()}), tmp_path / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_text() == "before"


def test_validate_training_says_which_jobs_departed(ringside, monkeypatch, tmp_path):
    job = SimpleNamespace(mesh=SimpleNamespace(ranks=2))

    def one(error, same):
        return SimpleNamespace(
            record=SimpleNamespace(step_s=0.1, spread=0.01, steps=[1], job=job),
            planned=8, same_order=same, same_bytes=same, differences=[] if same else [HOSTILE],
            predicted_s=None if error is None else 0.1 * (1 + error), error=error,
        )  # fmt: skip

    found = {"a": one(0.01, True), "b": one(None, False)}
    monkeypatch.setattr(
        "ringside.validation.emulated.strategies.judge",
        lambda plan, keep: [keep(SimpleNamespace(name=name), each) for name, each in found.items()],
    )
    code, _, err = ringside("validate", "training", "--html", "page.html")
    assert (code, "another order" in err) == (1, True)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "predicted with an error of +1.0%. 1 of 2 jobs followed their program." in page
    assert "window.ran = 1</script>" not in page


def test_validate_disturbances_names_the_worst_quantile(ringside, monkeypatch, tmp_path):
    case = SimpleNamespace(name="a straggler")
    one = ComparedDraws(Drawn(0.1, (0.1, 0.11, 0.12), 0), (0.1, 0.11, 0.18))
    monkeypatch.setattr(
        "ringside.validation.emulated.disturbances.judge", lambda plan, keep, steps: keep(case, one)
    )
    code, _, err = ringside("validate", "disturbances", "--html", "page.html")
    assert (code, "p95" in err) == (1, True)
    read = text_of((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert re.search(
        r"1 of 2 quantiles are within their tolerance; worst error \d+\.\d%, a straggler: p95", read
    )


def test_layouts_searches_and_draws_have_the_page(ringside, tmp_path):
    asked = {
        "layout": "--tp 2 --pp 2 --batch 4",
        "search": "--search --global-batch 8 --strategy ddp --pp 1 --checkpointing none --tp 2",
        "drawn": "--tp 2 --batch 2 --jitter lognormal:0.1 --draws 3",
        "nodes": "--batch 1 --jitter lognormal:0.1 --draws 3",
    }
    heads = {
        "layout": r"[\d.]+ ms a step, [\d.,]+ samples/s, [\d.,]+ tokens/s, MFU",
        "search": r"the best takes [\d.]+ ms: .*--batch \d",
        "drawn": r"With --jitter lognormal:0.1 a step of ddp of gpt2 .* takes [\d.]+ ms in the median",
        "nodes": r"With --jitter lognormal:0.1 a step of ddp .* on 4 ranks of star:4 takes [\d.]+ ms in the",
    }
    gpt2 = "train --model gpt2 --cluster star:4 --library ideal --device a100"
    for name, words in asked.items():
        code, _, err = ringside(*f"{gpt2} {words} --html {name}.html".split())
        assert code == 0, err
        assert re.search(heads[name], text_of((tmp_path / f"{name}.html").read_text(encoding="utf-8")))


def test_a_figures_buttons_hide_nothing_behind_them():
    assert chart().layout.modebar.bgcolor == "rgba(0,0,0,0)"
