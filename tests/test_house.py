"""The house rules that no linter counts."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

TOP = Path(__file__).parents[1]
ROOMS = ("topologies", "sim", "real", "validation", "ringside")
FILES = sorted(file for room in ROOMS for file in (TOP / room).rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TOP)))
def test_file_is_short_and_says_what_it_is(file):
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    tree = ast.parse(text)
    if text:
        assert ast.get_docstring(tree), "a file begins with why it exists"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.body[0].lineno < 60, node.name


def test_no_two_files_import_each_other():
    graph = grimp.build_graph(*ROOMS)
    imports = {file: graph.find_modules_directly_imported_by(file) for file in graph.modules}
    assert len(imports) > 100
    TopologicalSorter(imports).prepare()


def imported_by(code):
    check = f"import sys; {code}; print(' '.join(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_ringside_is_light():
    assert not imported_by("import ringside") & {"torch", "scipy", "matplotlib", "numpy"}


def test_a_textbook_question_opens_none_of_nccls_rooms():
    argv = "ringside simulate all_reduce --library ideal --cluster star:8 --size 1MiB".split()
    code = f"""
sys.argv = {argv!r}
from ringside.cli import main
try: main()
except SystemExit as end: assert not end.code
"""
    assert not {
        name for name in imported_by(f"exec({code!r})") if name.startswith("ringside.sim.libraries.nccl")
    }


COMMANDS = (
    "",
    "topo",
    "simulate",
    "collectives",
    "pick",
    "train",
    "whatif",
    "goodput",
    "measure",
    "measure ddp",
    "measure train",
    "measure elastic",
    "calibrate",
    "compare",
    "explain",
    "pairs",
    "program",
    "scorecard",
    "scorecard training",
    "sweep",
    "trace",
    "validate",
    "validate ddp",
    "validate training",
    "validate disturbances",
    "demo",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_light(command):
    argv = ["ringside", *command.split(), "--help"]
    code = f"""
sys.argv = {argv!r}
from ringside.__main__ import main
try: main()
except SystemExit as end: assert not end.code
"""
    assert not imported_by(f"exec({code!r})") & {"torch", "scipy", "matplotlib", "plotly", "jinja2"}


def test_every_command_has_its_help_tested():
    from ringside import cli

    assert set(cli.COMMANDS) == set(COMMANDS) - {""}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name])
def test_a_command_says_of_itself_what_the_list_says_of_it(name):
    from ringside import cli

    assert cli.command_of(name).__doc__ == cli.COMMANDS[name]


def test_import_contracts():
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
