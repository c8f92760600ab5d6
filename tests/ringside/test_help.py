"""`--help`: of every command every option with its default, and nothing that a help string says is lost."""

import os
import subprocess
import sys

import pytest
import typer

from ringside.cli import COMMANDS, commands
from ringside.options import Times
from ringside.sim.libraries.nccl.library import CLOCKS

GROUP = typer.main.get_command(commands(COMMANDS))


def solid(text):
    """Signs alone: where lines end is the terminal's."""
    return "".join(text.split())


@pytest.fixture
def shown(ringside):
    """The help of a command."""

    def show(name):
        code, out, _ = ringside(*name.split(), "--help")
        assert code == 0
        return out

    return show


@pytest.mark.parametrize("name", COMMANDS)
def test_every_default_and_every_word_of_the_help_is_there(shown, name):
    text = solid(shown(name))
    for param in GROUP.commands[name].params:
        assert solid(param.help) in text, param.opts
        told = param.show_default
        if isinstance(told, str):
            assert solid(f"[default: ({told})") in text, param.opts
        elif param.default not in (None, False) and told:
            assert solid(f"[default: {param.default}") in text, param.opts


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_of_the_help_is_cut_or_wider_than_80_columns(shown, name):
    text = shown(name)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_says_its_default_in_words_that_could_drift(name):
    for param in GROUP.commands[name].params:
        assert "default" not in param.help, param.opts


def test_choices_that_are_written_by_hand_are_those_that_hold():
    assert Times.__metadata__[0].metavar == "|".join(CLOCKS)


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("measure", "--model --kills --tp --comm-hook"),
        ("measure ddp", "--begin --kills --tp --nnodes"),
        ("measure train", "--backend --begin --kills --comm-hook --plot"),
        ("measure elastic", "--backend --begin --model --emulate"),
        ("validate ddp", "--family"),
        ("validate training", "--plot"),
        ("scorecard", "--table"),
    ],
)
def test_a_command_has_only_its_own_words(shown, name, foreign):
    assert not set(foreign.split()) & set(shown(name).split())


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("ringside meas", "measure"),
        ("ringside measure el", "elastic"),
        ("ringside measure ddp --comm", "--comm-hook"),
    ],
)
def test_a_shell_completes_commands_their_second_words_and_options(line, completed):
    asked = {"_RINGSIDE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    code = "import sys; sys.argv = ['ringside']; from ringside.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [completed]


def test_the_command_has_one_name_however_it_is_started():
    """The script that a shell completes by is made of that name."""
    ran = subprocess.run([sys.executable, "-m", "ringside", "-h"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("Usage: ringside [OPTIONS]")


def test_who_reads_no_further_leaves_the_command_well():
    """More than a pipe's buffer is written, so that writing fails before the command ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "ringside", "topo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ran:
        ran.stdout.close()
        assert (ran.stderr.read(), ran.wait()) == (b"", 0)
