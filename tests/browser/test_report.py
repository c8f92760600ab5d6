"""The pages that commands write, in a browser."""

import re
import sys
from contextlib import suppress

import pytest

from ringside.__main__ import main
from ringside.report.page import Page, Table, write_page
from tests.browser.conftest import WIDTHS
from tests.ringside.output.test_report import BLUE_MACHINE, HOSTILE, cells

pytestmark = pytest.mark.slow

COMMANDS = {
    "compare": "compare job.log --html {page}",
    "step": "train --model resnet50 --cluster dgx-a100:2 --html {page} --trace step.json",
    "caps": "train --model resnet50 --cluster dgx-a100:2 --sweep bucket-cap-mb=1,5,25,100 --html {page}",
    "scorecard": "scorecard training --table korthikanti --html {page}",
    "validate": "validate --html {page}",
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory, chromium):
    """Make the page of each command, once."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "job.log").write_text(BLUE_MACHINE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(
            "ringside.validation.emulated.collectives.validate", lambda plan, keep: [*map(keep, cells())]
        )
        for name, words in COMMANDS.items():
            patch.setattr(sys, "argv", ["ringside", *words.format(page=f"{name}.html").split()])
            with suppress(SystemExit):
                main()
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_answers_first_and_shows_values_under_the_pointer(pages, opened, name):
    with opened((pages / f"{name}.html").as_uri()) as page:
        box = page.locator(".headline").bounding_box()
        assert box["y"] + box["height"] <= 500
        assert page.locator(".headline").inner_text()
        assert not page.locator("details").evaluate("folded => folded.open")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            for figure in page.locator(".js-plotly-plot").all():
                assert pointed_at(page, figure)
        for link in page.locator("main a").all():
            assert (pages / link.get_attribute("href")).exists()


def pointed_at(page, figure):
    """Return the text of the first mark under the pointer."""
    figure.scroll_into_view_if_needed()
    marks = figure.locator(".point path, .points path, .heatmaplayer image")
    assert marks.count(), "the figure shows nothing"
    # a figure that is still being fitted to a new width takes its label away again, so it is asked anew
    for at in [*range(min(marks.count(), 20))] * 5:
        box = marks.nth(at).bounding_box()
        if box and box["width"] > 1:
            page.mouse.move(0, 0)
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            page.wait_for_timeout(80)
            said = figure.locator(".hoverlayer text").all_text_contents()
            if said:
                return said[0]
    return ""


GRIDS = (
    {"algorithm": ["ring", "tree"]},
    {"ranks": [2, 3, 4], "size": ["4K", "1M"]},
    {"ranks": range(2, 8), "size": [f"{size}K" for size in range(1, 9)]},
    {"ranks": [2, 3], "size": ["4K", "1M"], "algorithm": ["ring", "tree"]},
)


def test_each_kind_of_a_studys_figure_says_its_values(pages, opened):
    pd = pytest.importorskip("pandas")
    from ringside.report.study import study_figures
    from ringside.studies.study import made
    from ringside.studies.summary import summary

    figures = {}
    for grid in GRIDS:
        options = {"collective": "all_reduce", "cluster": " ".join(f"{{{name}}}" for name in grid)}
        lists = {name: list(values) for name, values in grid.items()}
        study = made({"ask": "simulate", "options": options, "grid": lists}, "study")
        rows = pd.DataFrame(
            [{"point": at, **own, "time_s": 1e-3 * (at + 1), "error": None} for at, own in study.points()]
        )
        figures |= study_figures(study, rows, summary(study, rows))
    assert len(figures) == len(GRIDS)
    write_page(Page(title="t", headline="h", figures=figures), pages / "study.html")
    with opened((pages / "study.html").as_uri()) as page:
        for figure in page.locator(".js-plotly-plot").all():
            assert re.search(r"time s|least", pointed_at(page, figure))


def column(page, at):
    return page.locator(f"tbody tr td:nth-child({at})").all_inner_texts()


def test_a_head_sorts_numbers_as_numbers_by_mouse_and_by_keyboard(pages, opened):
    table = Table(
        "Rows",
        [("size", "(B)"), ("time", "(us)"), ("name", "")],
        [("64K", 100, "b"), ("8K", 9.5, "a"), ("1M", None, "c"), ("100", 1e6, "-")],
    )
    write_page(Page(title="t", headline="h", tables=[table]), pages / "sorted.html")
    with opened((pages / "sorted.html").as_uri()) as page:
        size, time, name = page.locator("th button").all()
        size.click()
        assert column(page, 1) == ["100", "8K", "64K", "1M"]
        assert page.locator("th").first.get_attribute("aria-sort") == "ascending"
        time.focus()
        page.keyboard.press("Enter")
        assert column(page, 2) == ["9.5", "100", "1,000,000", "–"]
        page.keyboard.press("Enter")
        assert column(page, 2) == ["1,000,000", "100", "9.5", "–"]
        assert page.locator("th").nth(1).get_attribute("aria-sort") == "descending"
        assert page.locator("th").first.get_attribute("aria-sort") is None
        name.click()
        assert column(page, 3) == ["a", "b", "c", "–"]


def test_hostile_names_are_shown_and_not_run(pages, opened):
    from ringside.report.charts import beside

    figure = beside([HOSTILE], {"step": [1.0]})
    page_of = Page(
        title=HOSTILE, headline=HOSTILE, figures={HOSTILE: figure}, texts={HOSTILE: HOSTILE},
        tables=[Table(HOSTILE, [(HOSTILE, "")], [(HOSTILE,)])], notes=[HOSTILE], raw={HOSTILE: HOSTILE},
    )  # fmt: skip
    write_page(page_of, pages / "hostile.html")
    with opened((pages / "hostile.html").as_uri()) as page:
        assert page.locator(".headline").inner_text() == HOSTILE
        assert "<script>" in pointed_at(page, page.locator(".js-plotly-plot"))
        assert page.evaluate("window.ran") is None
