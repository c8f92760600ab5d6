"""Answers in notebooks: as a frame, a picture and HTML, whatever was asked."""

import builtins
from pathlib import Path

import pytest

import ringside as package
from ringside.sim.questions.answer import Answer
from ringside.sim.questions.question import Question, option_of, options_of

PUBLISHED = Path(__file__).parents[3] / "validation/published"
EXAMPLES = Path(__file__).parents[3] / "examples"

QUESTIONS = {
    "simulate": lambda: package.CollectiveTime(collective="all_reduce", cluster="star:4", size="1M,4M"),
    "pick": lambda: package.AlgorithmChoice(
        collective="all_reduce", cluster="star", nodes=(2, 4), begin="1M", end="4M"
    ),
    "train": lambda: package.StepTime(model="resnet50", cluster="star:4"),
    "layout": lambda: package.StepTime(model="gpt2:128", cluster="star:4", strategy="fsdp", batch=2),
    "search": lambda: package.LayoutSearch(model="gpt2:128", cluster="star:2", global_batch=4),
    "whatif": lambda: package.WhatIf(what="all_reduce", cluster="star:4", size="1M"),
    "topo": lambda: package.ClusterFacts(cluster="star:4"),
    "goodput": lambda: package.JobGoodput(training="bloom-176b", trials=10),
    "experts": lambda: package.ExpertExchange(cluster="dgx-h100:2", tokens=(64, 128)),
    "expect": lambda: package.HealthyBandwidth(collective="all_reduce", cluster="dgx-h100:2", size="1G"),
    "program": lambda: package.ProgramTime(file=EXAMPLES / "halo_exchange.py", ranks=4, cluster="star:4"),
    "compare": lambda: package.Comparison(
        files=[PUBLISHED / "oke_a100_n2_r16.json"], cluster="dgx-a100:2", calibration="none"
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_is_a_frame_a_picture_and_html(name):
    answer = QUESTIONS[name]().ask()
    assert isinstance(answer, Answer)
    frame = answer.to_frame()
    assert len(frame) == len(answer.rows) > 0
    assert answer.plot()._repr_png_().startswith(b"\x89PNG")
    shown = answer._repr_html_()
    assert shown.startswith("<p><b>")
    assert "<tr>" in shown
    assert len(answer.rests_on) <= 2


def test_a_picture_is_a_file_of_any_format(tmp_path):
    assert QUESTIONS["simulate"]().ask().plot(tmp_path / "a.svg") is None
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_names_from_outside_are_escaped():
    class Named(Answer):
        headline = "<script>"
        rests_on = ("a & b",)
        rows = ({"name": "<b>"},)

    shown = Named()._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "a &amp; b" in shown


def test_without_pandas_a_frame_says_what_to_install(monkeypatch):
    answer = QUESTIONS["topo"]().ask()
    whole = builtins.__import__

    def refuse(name, *rest, **named):
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return whole(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ModuleNotFoundError, match=r"needs pandas; write pip install 'ringside-sim\[sweep\]'"):
        answer.to_frame()


ALL = [getattr(package, name) for name in package.__all__]


@pytest.mark.parametrize(
    "question", [one for one in ALL if isinstance(one, type) and issubclass(one, Question)]
)
def test_every_size_may_be_text(question):
    sizes = [one for one in options_of(question) if option_of(one).metavar in ("SIZE", "SIZE,...")]
    assert all(option_of(one).parse is not None for one in sizes)
