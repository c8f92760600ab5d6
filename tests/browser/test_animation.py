"""The pages of animations in a browser: the clock, its controls, and what they say in words."""

import sys
from contextlib import suppress

import pytest

from ringside.__main__ import main
from tests.browser.conftest import WIDTHS

pytestmark = pytest.mark.slow

PAGES = {
    "collective": "simulate all_reduce --cluster star:16 --size 1M --algorithm ring,tree,double_binary_tree",
    "pipeline": "train --model llama3-8b:2048 --cluster dgx-h100:1 --tp 2 --pp 4 --batch 8",
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory, chromium):
    folder = tmp_path_factory.mktemp("animations")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, line in PAGES.items():
            patch.setattr(sys, "argv", ["ringside", *line.split(), "--animate", f"{name}.html"])
            with suppress(SystemExit):
                main()
    return folder


def clock(page):
    return float(page.locator(".time").inner_text().split()[0])


@pytest.mark.parametrize("name", PAGES)
def test_controls_move_the_clock_by_mouse_and_by_keys(pages, opened, name):
    with opened((pages / f"{name}.html").as_uri()) as page:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            page.locator(".clock").fill("0")
            assert clock(page) == 0
            page.get_by_label("Step forward").click()
            first = clock(page)
            assert first > 0
            page.get_by_label("Step forward").click()
            assert clock(page) > first
            page.get_by_label("Step back").click()
            assert clock(page) == first
            page.locator(".clock").fill("500")
            half = clock(page)
            page.evaluate("document.activeElement.blur()")
            page.keyboard.press("ArrowRight")
            assert clock(page) > half
            page.locator(".speed").select_option("4")
            page.evaluate("document.activeElement.blur()")
            page.keyboard.press(" ")
            assert page.locator(".play").inner_text() == "Pause"
            page.wait_for_function(
                "() => document.querySelector('.play').textContent === 'Play'", timeout=10_000
            )
            assert page.locator(".clock").input_value() == "1000"
            page.locator(".play").focus()
            page.keyboard.press("Enter")
            page.wait_for_function("() => document.querySelector('.clock').value < 500")
            page.keyboard.press("Enter")
            assert page.locator(".play").inner_text() == "Play"


def test_the_picture_at_the_end_is_the_result_in_words_too(pages, opened):
    with opened((pages / "collective.html").as_uri()) as page:
        page.locator(".clock").fill("0")
        assert "0 % of results complete" in page.locator(".state").first.inner_text()
        page.locator(".clock").fill("1000")
        for state in page.locator(".state").all_inner_texts():
            assert state == "0 messages on their way, 100 % of results complete: done"
        assert "double_binary_tree: 0 messages" in page.locator(".spoken").inner_text()
        assert page.locator(".complete").evaluate_all(
            "all => all.every(one => one.getAttribute('stroke-dasharray').startsWith('100 '))"
        )
        page.locator("summary").click()
        assert page.locator(".moments tbody tr").count() == 11


def test_shades_differ_without_colour(pages, opened):
    """Of two shades the lighter one has at least three times the luminance, as WCAG asks of graphics."""
    for name, marks in {
        "collective": (".whole", ".part"),
        "pipeline": (".box.forward", ".box.backward"),
    }.items():
        with opened((pages / f"{name}.html").as_uri()) as page:
            page.locator(".clock").fill("400")
            fills = [page.locator(mark).first.evaluate("one => getComputedStyle(one).fill") for mark in marks]
            dark, light = sorted(map(luminance, fills))
            assert (light + 0.05) / (dark + 0.05) >= 3


def luminance(fill):
    channels = [int(one) / 255 for one in fill[4:-1].split(",")]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
