"""The texts of controls become a question, a command line and Python that say the same."""

import shlex
from contextlib import suppress

import pytest
import typer

from ringside.cli import commands
from ringside.serve.screens import SCREENS
from ringside.serve.spelling import command_line, parsed, python_code, question_of
from ringside.sim.questions.collective_time import CollectiveTime
from ringside.validation.questions.step_time import StepTime

STATE = {
    "collective": "all_reduce", "cluster": "dgx-h100", "nodes": "4", "size": "1M,4M", "nic": "25GB/s",
    "oversubscription": "2", "more": "--dtype=bfloat16 --collnet --set latency=2us", "model": "gpt2",
    "tp": "2", "sequence_parallel": "yes", "batch": "8",
}  # fmt: skip


@pytest.mark.parametrize("screen", SCREENS)
def test_every_view_of_a_screen_is_a_command_line_that_is_understood(screen):
    for view, question in SCREENS[screen].questions.items():
        kind, texts = question(SCREENS[screen].start())
        assert isinstance(question_of(kind, texts), kind)
        spelled = SCREENS[screen].spelled(view, SCREENS[screen].start())
        name, *options = shlex.split(spelled["command"])[1:]
        command = typer.main.get_command(commands([name])).commands[name]
        command.make_parser(typer.Context(command, **command.context_settings)).parse_args(args=options)
        compile(spelled["python"], view, "exec")


def test_a_state_is_the_question_that_its_command_line_asks():
    kind, texts = SCREENS["collective"].questions["answer"](STATE)
    assert command_line(kind, texts) == (
        "ringside simulate all_reduce --size 1M,4M --cluster dgx-h100:4 --set nic=25GB/s "
        "--set fabric=fat-tree --set oversubscription=2 --set latency=2us --dtype bfloat16 --collnet"
    )
    names = {}
    code = python_code(kind, texts).partition("answer = ")[2].partition(".ask()")[0]
    exec(f"from ringside import CollectiveTime\nquestion = {code}", names)
    assert names["question"] == question_of(kind, texts)
    assert names["question"].settings == {
        "nic": "25GB/s", "fabric": "fat-tree", "oversubscription": "2", "latency": "2us",
    }  # fmt: skip


@pytest.mark.parametrize(("screen", "control"), [(s, c.name) for s in SCREENS for c in SCREENS[s].controls])
def test_an_emptied_control_is_a_question_or_a_mistake_with_its_name(screen, control):
    for question in SCREENS[screen].questions.values():
        kind, texts = question(SCREENS[screen].start() | {control: ""})
        with suppress(ValueError):
            question_of(kind, texts)


def test_an_option_given_twice_is_refused_as_by_the_command():
    kind, texts = SCREENS["collective"].questions["answer"](STATE | {"more": "--dtype int8 --dtype=float16"})
    with pytest.raises(ValueError, match="--dtype is given 2 times; write it once"):
        question_of(kind, texts)


def test_views_of_one_size_take_the_last_and_others_leave_out_what_they_do_not_know():
    for view in ("limits", "timeline"):
        kind, texts = SCREENS["collective"].questions[view](STATE)
        assert texts["size"] == ["4M"]
        question_of(kind, {name: given for name, given in texts.items() if name != "collnet"})
    kind, texts = SCREENS["collective"].questions["limits"](STATE)
    assert "dtype" not in texts
    assert "algorithm" not in texts


@pytest.mark.parametrize(
    ("line", "texts", "written"),
    [
        ("--clip", {"clip": ["yes"]}, "--clip"),
        ("--no-clip", {"clip": ["no"]}, "--no-clip"),
        ("--no-sync", {"no_sync": ["yes"]}, "--no-sync"),
        ("--set nic=1GB/s --settings 'fabric=torus'", {"settings": ["nic=1GB/s", "fabric=torus"]},
         "--set nic=1GB/s --set fabric=torus"),
        ("-g 8 --straggler 1=2", {"ranks": ["8"], "straggler": ["1=2"]}, "--ranks 8 --straggler 1=2"),
    ],
)  # fmt: skip
def test_options_are_read_as_on_a_command_line(line, texts, written):
    assert parsed(StepTime, line) == texts
    assert command_line(StepTime, texts) == f"ringside train {written}"


@pytest.mark.parametrize(
    ("line", "why"),
    [("--bytes 3", "--bytes is no option"), ("--dtype", "needs a value"), ("--dtype 'x", "quotation mark"),
     ("all_gather", "all_gather is no option")],
)  # fmt: skip
def test_what_is_no_option_is_refused(line, why):
    with pytest.raises(ValueError, match=why):
        parsed(CollectiveTime, line)
