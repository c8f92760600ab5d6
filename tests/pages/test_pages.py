"""Every command in README and pages is run, or gives a reason; its output is the one shown."""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from ringside.cli import commands
from ringside.sim.effort import MAX_MEMORY, MAX_TRANSFERS
from ringside.topologies.units import format_size
from tests.pages.console import DOCS, KEYS, NOT_RUN, PAGES, ROOT, ask, blocks, desk, misunderstood
from tests.tiers import slow_or_proof

NOT_RUN_TODAY = {
    "Docker": 1, "GPUs": 2, "half an hour": 3, "MPI": 4, "minutes": 20, "root": 19, "sets Ringside up": 1,
    "several machines": 3, "your files": 25,
}  # fmt: skip
"""How many commands no test runs, by what they need."""

LONG = {"measure", "published_training", "ring_or_tree"}
"""Pages that run for long to show what other tests show too."""

WRITES = {"--plot", "--plot-memory", "--trace", "--export", "--tuner-csv", "--timeline", "--animate", "-o"}


@pytest.mark.parametrize(
    "page",
    [
        PAGES[0],
        *slow_or_proof(PAGES[1:], [page for page in PAGES[1:] if page.stem not in LONG]),
    ],
    ids=lambda page: page.stem,
)
def test_commands_of_a_page_run_and_print_what_it_says(page):
    with desk() as folder:
        for block in blocks(page):
            if block.title:
                (folder / block.title).write_text(block.text, encoding="utf-8")
            if not block.is_run or block.mark == KEYS:
                continue
            for line, printed in block.commands:
                found, failed = ask(line)
                if block.language == "console":
                    assert found == printed, line
                else:
                    assert not failed, (line, found)
                words = line.split()
                written = {Path(name) for word, name in pairwise(words) if word in WRITES}
                assert all(file.exists() for file in written), line
                for file in written:
                    if file.suffix == ".html" and (shown := page.parent / file).exists():
                        assert file.read_text() == shown.read_text(), f"python -m tests.pages.console {page}"


def test_no_command_is_shown_that_is_neither_run_nor_says_why_not():
    reasons = Counter()
    for page in DOCS:
        for block in blocks(page):
            if not block.shows_commands or block.is_run:
                continue
            if page.name == "README.md" and block.mark in ("demo", "tests"):
                continue  # .ci/run runs the one that installs and tests, a test of the demo the other
            assert block.mark.startswith(NOT_RUN), (page.name, block.text)
            reasons[block.mark.removeprefix(NOT_RUN)] += len(block.commands)
    assert reasons == NOT_RUN_TODAY


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_words_of_every_command_are_known_even_where_it_is_not_run(page):
    for block in blocks(page):
        if block.shows_commands:
            for line, _ in block.commands:
                assert not misunderstood(line), line


def test_help_and_pages_name_the_same_limits():
    page = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    simulate = typer.main.get_command(commands(["simulate"])).commands["simulate"]
    (force,) = (option for option in simulate.params if option.name == "force")
    for limit in (f"{MAX_TRANSFERS:,}", format_size(MAX_MEMORY)):
        assert limit in force.help
        assert limit in page


def test_lines_of_prose_are_of_one_width():
    for page in DOCS:
        text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        prose = [line for line in text.splitlines() if not line.startswith(("|", "!", "    ", "<!--"))]
        assert not [line for line in prose if len(line) > 120], page.name


def test_the_first_page_leads_to_every_other():
    first = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    linked = {target.partition("#")[0] for target in re.findall(r"\]\(([^)]+\.md[^)]*)\)", first)}
    pages = {str(page.relative_to(ROOT / "docs")) for page in DOCS[1:] if page.parent.name != "decisions"}
    assert pages - linked == {"index.md"}
