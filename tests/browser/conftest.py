"""Fixtures for Debian's Chromium, driven by playwright; both are optional."""

import shutil
from contextlib import contextmanager

import pytest

WIDTHS = (400, 1280)


@pytest.fixture(scope="module")
def chromium():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
    binary = shutil.which("chromium")
    if binary is None:
        pytest.skip("no chromium here: apt install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Open an address; check at the end that it fits both widths, without errors or other requests."""

    @contextmanager
    def open_page(address, home="file://"):
        context = chromium.new_context(viewport={"width": WIDTHS[0], "height": 800})
        page = context.new_page()
        wrong = []
        page.on(
            "console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith((home, "data:", "blob:")) else wrong.append(asked.url),
        )
        try:
            page.goto(address)
            yield page
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                # once what moves while a window changes has come to rest
                page.wait_for_function(
                    "width => document.documentElement.scrollWidth <= width", arg=width, timeout=5000
                )
            assert not wrong
        finally:
            context.close()

    return open_page
