"""The explorer in a browser: every control, by mouse and by keyboard, at both widths."""

import json
import os
import statistics
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ringside.topologies.units import format_duration
from tests.browser.conftest import WIDTHS
from tests.ringside.serve.conftest import start

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parents[2] / "examples/recorded.json"

TRIED = {
    "collective": {
        "collective": "all_gather", "cluster": "star", "nodes": "8", "size": "1M", "algorithm": "ring",
        "library": "ideal", "nic": "100Gb/s", "more": "--dtype bfloat16",
    },
    "training": {
        "cluster": "dgx-a100", "nodes": "1", "model": "llama3-8b:2048", "pp": "2", "tp": "4", "batch": "4",
        "micro_batch": "2", "strategy": "megatron_ddp", "schedule": "interleaved1f1b", "stack": "megatron",
        "checkpointing": "full", "nic": "100Gb/s", "more": "--optimizer sgd",
    },
    "recorded": {"model": str(RECORDED), "cluster": "dgx-a100", "nodes": "4", "nic": "50Gb/s",
                 "more": "--contention 0.2"},
}  # fmt: skip
"""A value for controls of each screen, one after another."""

SETTLED = """([view, old]) => {
  const place = document.querySelector(`.view[data-view=${view}]`);
  const wrong = place.querySelector(".state.wrong");
  if (wrong && !place.classList.contains("old")) throw new Error(wrong.textContent);
  return !place.classList.contains("old") && !place.querySelector(".state").textContent
    && document.getElementById("command").textContent !== old;
}"""


@pytest.fixture(scope="module")
def explorer(chromium):
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra serve)")
    server = start(str(RECORDED))
    yield server.address.removesuffix("recorded")
    server.end()


@pytest.fixture
def shown(explorer, opened):
    """Open a screen of the explorer."""

    def open_screen(screen, state="open="):
        return opened(f"{explorer}{screen}?{state}", home=f"http://{urlsplit(explorer).netloc}/")

    return open_screen


def command(page):
    return page.locator("#command").inner_text()


def settle(page, old="?", view="answer"):
    page.wait_for_function(SETTLED, arg=[view, old], timeout=30_000)


def change(page, name, value):
    """Set a control as a person would, and wait for the answer."""
    old, control = command(page), page.locator(f".controls [name={name}]")
    kind = control.evaluate("one => one.tagName + one.type")
    control.select_option(value) if kind.startswith("SELECT") else control.fill(value)
    settle(page, old)


@pytest.mark.parametrize("screen", TRIED)
def test_every_control_changes_the_answer_at_both_widths(shown, screen):
    for width in WIDTHS:
        with shown(screen) as page:
            page.set_viewport_size({"width": width, "height": 800})
            settle(page)
            tried = {**TRIED[screen]}
            if screen == "recorded":
                tried.pop("model")  # it is open already
            for name, value in tried.items():
                change(page, name, value)
                assert page.locator("[data-view=answer] .headline").inner_text()
                assert value.split()[-1] in command(page)
                assert value.replace("/", "%2F").replace(" ", "+").replace(":", "%3A") in page.url
            if screen == "training":
                old = command(page)
                page.locator("[name=more]").fill("")
                settle(page, old)
                change(page, "tp", "2")
                old = command(page)
                page.locator("[name=sequence_parallel]").check()
                settle(page, old)
                assert "--sequence-parallel" in command(page)
                change(page, "nodes", "2")
                change(page, "oversubscription", "2")
                assert "fabric=fat-tree" in command(page)
            if screen == "collective":
                change(page, "cluster", "leaf-spine")
                change(page, "nodes", "2")
                change(page, "oversubscription", "4")
                assert "oversubscription=4" in command(page)
            for button in page.locator(".copy").all():
                button.click()
                page.wait_for_function("one => one.textContent !== 'Copy'", arg=button.element_handle())
                assert button.inner_text() in ("Copied", "Selected")
            address, headline = page.url, page.locator("[data-view=answer] .headline").inner_text()
            page.goto(address)
            settle(page)
            assert page.locator("[data-view=answer] .headline").inner_text() == headline


def test_fifty_changes_in_a_row_leave_the_newest(shown):
    with shown("collective") as page:
        settle(page)
        size = page.locator("[name=size]")
        for number in range(1, 51):
            size.fill(f"{number}M")
            page.wait_for_timeout(20 if number % 7 else 120)
        page.wait_for_function("() => document.getElementById('command').textContent.includes('--size 50M')")
        settle(page)
        page.wait_for_timeout(1500)  # an older answer would come now
        (row,) = json.loads(page.locator("#json").text_content())["rows"]
        assert row["size_bytes"] == 50 * 2**20
        assert format_duration(row["time_s"], 3) in page.locator("[data-view=answer] .headline").inner_text()


def test_a_wrong_value_is_answered_and_the_next_right_one_too(shown):
    with shown("collective") as page:
        settle(page)
        page.locator("[name=size]").fill("1 parsec")
        wrong = page.locator("[data-view=answer] .state.wrong")
        wrong.wait_for()
        assert "1 parsec" in wrong.inner_text()
        assert not page.locator("#json").text_content()
        change(page, "size", "2M")
        (row,) = json.loads(page.locator("#json").text_content())["rows"]
        assert row["size_bytes"] == 2 * 2**20
        assert format_duration(row["time_s"], 3) in page.locator("[data-view=answer] .headline").inner_text()


def test_the_keyboard_alone_is_enough(shown):
    with shown("collective") as page:
        settle(page)
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.add(
                page.evaluate("() => document.activeElement.name || document.activeElement.textContent")
            )
        assert set(TRIED["collective"]) <= reached
        assert {"Training", "Recorded job", "Copy", "Moving"} <= {one.strip() for one in reached}
        old = command(page)
        page.locator("[name=collective]").focus()
        page.keyboard.press("ArrowDown")
        settle(page, old)
        assert "all_gather" in command(page)
        page.locator("details[data-view=limits] summary").focus()
        page.keyboard.press("Enter")
        settle(page, view="limits")
        assert page.locator("[data-view=limits] table").is_visible()
        assert "open=limits" in page.url


def test_a_long_question_shows_progress_and_is_cancelled(shown):
    state = "collective=all_reduce&cluster=star&nodes=1024&size=64M&algorithm=ring&more=--engine+simpy&open="
    with shown("collective", state) as page:
        page.wait_for_function(
            "() => document.querySelector('[data-view=answer] .state').textContent.includes('of 2,095,104')",
            timeout=60_000,
        )
        page.locator("[data-view=answer] .cancel").click()
        assert "cancelled" in page.locator("[data-view=answer] .state").inner_text()
        page.locator("[name=more]").fill("")
        page.locator("[name=nodes]").fill("4")
        page.wait_for_function(
            "() => document.getElementById('command').textContent.includes('star:4 ') || "
            "document.getElementById('command').textContent.endsWith('star:4')"
        )
        settle(page)


def test_views_show_pictures_and_an_animation(shown):
    state = "collective=all_reduce&cluster=star&nodes=8&size=1M&algorithm=ring,tree"
    with shown("collective", f"{state}&open=limits,map,timeline,animation") as page:
        for view in ("limits", "map", "timeline"):
            settle(page, view=view)
        for image in page.locator(".shown img").all():
            assert image.evaluate("one => one.naturalWidth") > 300
            assert image.get_attribute("alt")
        frame = page.frame_locator(".animation iframe")
        frame.locator(".play").click()
        assert frame.locator("figcaption").count() == 2
        frame.locator(".play").click()


def test_answers_come_in_time(shown):
    """Print the medians; the limits are those of an idle machine, twice over, or more on one that is busy."""
    with shown("collective", "open=limits,map") as page:
        settle(page, view="map")
        seconds = {"answer": [], "map": []}
        for kind in ("all_gather", "reduce_scatter", "broadcast", "all_gather", "reduce_scatter"):
            old, began = command(page), time.monotonic()
            page.locator("[name=collective]").select_option(kind)
            for view, times in seconds.items():
                settle(page, old, view)
                times.append(time.monotonic() - began)
    with shown("training") as page:
        settle(page)
        seconds["layout"] = []
        for tp in ("1", "2", "4", "1", "2", "4"):
            began = time.monotonic()
            change(page, "tp", tp)
            seconds["layout"].append(time.monotonic() - began)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print({name: f"{1e3 * median:.0f} ms" for name, median in medians.items()})
    busy = 2 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert medians["answer"] < 0.2 * busy
    assert medians["map"] < 1 * busy
    assert medians["layout"] < 1 * busy
