"""`--help`: every option of every command with its default, untruncated, without heavy imports."""

import json
import os
import subprocess
import sys

import pytest
import typer

from ringside.cli import COMMANDS, command_of, commands
from ringside.sim.libraries.nccl.library import CLOCKS
from tests.processes import python

GROUP = typer.main.get_command(commands(COMMANDS))
TEXTBOOK = "simulate all_reduce --library ideal --cluster star:8 --size 1MiB"
SWEEP = """
import contextlib, io, json, sys

def ask(line):
    sys.argv = ["ringside", *line.split()]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as end:
            assert not end.code, line
    return out.getvalue()

def new_modules(known=set()):
    new = set(sys.modules) - known
    known |= new
    return sorted(new)

import ringside
answers = {"import": ("", new_modules())}
from ringside.__main__ import main
for line in sys.argv[1:]:
    answers[line] = (ask(line), new_modules())
print(json.dumps(answers))
"""
"""Ask every command line in one process; print each answer and the modules that it was first to import."""


@pytest.fixture(scope="module")
def swept():
    lines = ["--help", TEXTBOOK, *(f"{name} --help" for name in COMMANDS)]
    return json.loads(python("-c", SWEEP, *lines).stdout)


@pytest.fixture(scope="module")
def shown(swept):
    """Return the help of each command."""
    return {name: swept[f"{name} --help"][0] for name in COMMANDS}


def solid(text):
    """Remove blanks, since line ends depend on the terminal."""
    return "".join(text.split())


def test_nothing_heavy_is_imported_for_help(swept):
    heavy = {"torch", "scipy", "matplotlib", "plotly", "jinja2"}
    assert {line: heavy & set(modules) for line, (_, modules) in swept.items() if heavy & set(modules)} == {}
    assert not {"simpy", "numpy", "networkx", "pydantic"} & set(swept["import"][1])


def test_a_textbook_question_opens_none_of_nccls_rooms(swept):
    opened = [name for line in ("import", "--help", TEXTBOOK) for name in swept[line][1]]
    assert "ringside.sim.libraries.find" in opened
    assert not [name for name in opened if name.startswith("ringside.sim.libraries.nccl")]


def test_every_default_and_every_word_of_the_help_is_there(shown):
    for name in COMMANDS:
        text = solid(shown[name])
        assert solid(COMMANDS[name]) in text
        for param in GROUP.commands[name].params:
            assert solid(param.help) in text, (name, param.opts)
            told = param.show_default
            if isinstance(told, str):
                assert solid(f"[default: ({told})") in text, (name, param.opts)
            elif param.default not in (None, False) and told:
                assert solid(f"[default: {param.default}") in text, (name, param.opts)


def test_no_line_of_the_help_is_cut_or_wider_than_80_columns(shown):
    for name, text in shown.items():
        assert max(map(len, text.splitlines())) <= 80, name
        assert "…" not in text, name


def test_no_option_says_its_default_in_words_that_could_drift():
    assert not [
        (name, param.opts)
        for name in COMMANDS
        for param in GROUP.commands[name].params
        if "default" in param.help
    ]


def test_a_command_says_of_itself_what_the_list_says_of_it():
    assert {name: command_of(name).__doc__ for name in COMMANDS} == COMMANDS


def test_choices_that_are_written_by_hand_are_those_that_hold():
    (times,) = (param for param in GROUP.commands["simulate"].params if param.name == "times")
    assert times.metavar == "|".join(CLOCKS)


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("measure", "--model --kills --tp --comm-hook"),
        ("measure ddp", "--begin --kills --tp --nnodes"),
        ("measure train", "--backend --begin --kills --comm-hook --plot"),
        ("measure compute", "--backend --begin --ranks --emulate"),
        ("measure elastic", "--backend --begin --model --emulate"),
        ("validate ddp", "--family"),
        ("validate training", "--plot"),
    ],
)
def test_a_command_has_only_its_own_words(shown, name, foreign):
    assert not set(foreign.split()) & set(shown[name].split())


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("ringside meas", "measure"),
        ("ringside measure el", "elastic"),
        ("ringside measure ddp --comm", "--comm-hook"),
        ("ringside simulate all_ga", "all_gather"),
        ("ringside simulate all_reduce --cluster dgx-a1", "dgx-a100"),
        ("ringside simulate all_reduce --algorithm ring,double", "ring,double_binary_tree"),
        ("ringside train --model llama3-8", "llama3-8b"),
    ],
)
def test_a_shell_completes_commands_their_second_words_and_options(line, completed):
    asked = {"_RINGSIDE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    code = "import sys; sys.argv = ['ringside']; from ringside.cli import main; main()"
    assert python("-c", code, env=os.environ | asked).stdout.split() == [completed]


def test_the_command_has_one_name_however_it_is_started():
    """The script that a shell completes by is made of that name."""
    assert python("-m", "ringside", "-h").stdout.startswith("Usage: ringside [OPTIONS]")


def test_who_reads_no_further_leaves_the_command_well():
    """More than a pipe's buffer is written, so that writing fails before the command ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "ringside", "topo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ran:
        ran.stdout.close()
        assert (ran.stderr.read(), ran.wait()) == (b"", 0)
