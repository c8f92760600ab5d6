"""``ringside train --search``: its output, agreement with plain simulation, and its errors."""

import json
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ringside
from ringside.sim.training.search.search import SLOWER

GPT = ("--model", "gpt2:256", "--cluster", "dgx-a100:1")
SEARCH = (*GPT, "--search", "--global-batch", "16", "--tp", "2", "--pp", "2", "--top", "3")
PAGE = Path(__file__).parents[3] / "docs" / "search.md"

Run = Callable[..., str]


@pytest.fixture
def answer(train: Run) -> Any:
    """Search once for all tests of what is answered."""
    if not _ANSWERS:
        _ANSWERS.append(train(*SEARCH, "--json"))
    return json.loads(_ANSWERS[0])


_ANSWERS: list[str] = []


@pytest.mark.slow
def test_each_ranked_layout_takes_what_train_says_of_it(train: Run, answer: Any) -> None:
    assert answer["schema"] == "ringside.train-search/1"
    assert answer["complete"]
    assert answer["considered"] == len(answer["rows"]) + len(answer["pruned"])
    assert sum(one["layouts"] for one in answer["pruned_by_reason"]) == len(answer["pruned"])
    assert [row["step_s"] for row in answer["rows"]] == sorted(row["step_s"] for row in answer["rows"])
    last = answer["rows"][-1]["step_s"]
    assert all(one["at_least_s"] >= last for one in answer["pruned"] if one["kind"] == SLOWER)
    for row in answer["rows"]:
        same: dict[str, Any] = json.loads(train(*GPT, *shlex.split(row["options"]), "--json"))
        assert row["step_s"] == same["step_s"]
        assert row["mfu"] == pytest.approx(same["mfu"])
        assert row["memory_bytes"] == same["memory_bytes"]["total"]
        assert row["margin_bytes"] == same["memory_bytes"]["margin"] >= 0
        assert same["fits"]
        assert same["samples"] == 16


@pytest.mark.slow
def test_the_winners_step_is_drawn_and_traced(train: Run, tmp_path: Path) -> None:
    out = train(*SEARCH, "--plot", "won.svg", "--trace", "won.json")
    assert out.startswith("# the best takes ")
    assert "<svg" in (tmp_path / "won.svg").read_text()
    assert json.loads((tmp_path / "won.json").read_text())


@pytest.mark.slow
def test_python_ranks_as_the_command_does(answer: Any) -> None:
    question = ringside.LayoutSearch(
        model="gpt2:256", cluster="dgx-a100:1", global_batch=16, top=3, tp=2, pp=2
    )
    assert json.loads(json.dumps(question.ask().rows)) == answer["rows"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_control_c_and_sigterm_print_what_is_known(
    ringside: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    import ringside.sim.training.search.search as home
    from ringside.sim.training.search.search import play_parallel

    calls: list[int] = []

    def interrupted(*words: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(number)
        return play_parallel(*words)

    monkeypatch.setattr(home, "play_parallel", interrupted)
    code, out, _ = ringside("train", *SEARCH)
    assert code == 128 + number
    assert re.match(r"# stopped before \d+ layouts were simulated; the best so far takes ", out)
    assert sum(not line.startswith("#") for line in out.splitlines()) == 2


def test_where_nothing_fits_it_says_so(train: Run) -> None:
    out = train(*SEARCH, "--reserve", "81900MiB", "--plot", "won.svg")
    assert "won.svg is not written" in out
    assert "no layout is known that fits" in out.splitlines()[0]
    assert " tight" in out
    with pytest.raises(RuntimeError, match="is tight in a GPU; a smaller --global-batch"):
        train(*SEARCH, "--reserve", "81900MiB", "--must-fit")


def test_where_no_layout_can_be_it_says_so_and_why(train: Run) -> None:
    out = train("--model", "gpt2", "--cluster", "dgx-a100:1", "--search", "--strategy", "fsdp", "--pp", "8")
    assert out.startswith("# none of these layouts is possible, for the reasons below")
    assert "invalid: fsdp shards over" in out
    assert all(line.startswith("# ") for line in out.splitlines())
    assert "(GiB)" not in out


def test_what_nobody_knows_is_a_dash_and_names_stay_as_they_are(train: Run) -> None:
    words = ("--search", "--pp", "1", "--top", "1", "--micro-batch", "8", "--all")
    out = train("--model", "resnet50", "--cluster", "dgx-a100:1", "--precision", "fp32", *words)
    assert "and resnet50 is none" in " ".join(out.replace("#", "").split())
    head, _, row = out.splitlines()[1:4]
    assert row.split()[head.removeprefix("#").split().index("MFU") + 1] == "-"


@pytest.mark.slow
def test_the_page_names_every_field(answer: Any) -> None:
    page = PAGE.read_text()
    fields = {*answer, *answer["rows"][0], *answer["pruned"][0]} - {"schema", "inputs", "notes"}
    assert {field for field in fields if f"`{field}`" not in page} == set()
