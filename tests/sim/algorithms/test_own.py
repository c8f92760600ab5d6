"""An algorithm of a user's own is a file with a table of builders."""

import re
from pathlib import Path

import pytest

from ringside import Collective, prove, schedule

PAGE = (Path(__file__).parents[3] / "docs/how/own_algorithm.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'```python title="(\S+)"\n(.*?)```', PAGE, re.S))


@pytest.fixture
def mine(written, request):
    """Write the page's file under a name that no other test has registered."""
    return lambda name: written(FILES[name], f"{name.removesuffix('.py')}_{request.node.name[:24]}.py")


def test_the_tutorials_algorithm_is_as_short_as_it_says():
    assert len(FILES["swing.py"].splitlines()) <= 40


@pytest.mark.parametrize("ranks", [2, 4, 6, 16, 64])
def test_swing_is_proved_on_any_number_of_ranks(mine, ranks):
    plan = schedule(str(mine("swing.py")), Collective("all_reduce", ranks, 2**16))
    prove(plan)
    assert plan.algorithm == ("swing" if ranks & (ranks - 1) == 0 else "recursive_doubling")


def test_its_partners_are_those_of_the_paper(mine):
    plan = schedule(str(mine("swing.py")), Collective("all_reduce", 16, 2**16))
    assert [int(step.dst[0]) for step in plan.steps()] == [1, 15, 3, 11]


def test_a_wrong_one_is_refused_with_the_transfer(mine):
    with pytest.raises(ValueError, match="the contribution of rank 3 would be added twice"):
        schedule(str(mine("swung.py")), Collective("all_reduce", 16, 2**16))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no BUILDS; write for example BUILDS"),
        ("BUILDS = {'all_redcue': 1}", "write all_reduce"),
        ("BUILDS = {'all_reduce': unknown}", "NameError: name 'unknown' is not defined"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("BUILDS = {'all_reduce': exit}", "SystemExit: Collective"),
        ("BUILDS = {'all_reduce': 3}", "TypeError: 'int' object is not callable"),
        ("BUILDS = {'all_reduce': lambda one: None}", "all_reduce returns NoneType; return a Schedule"),
        ("BUILDS = {'all_reduce': lambda one: int('x')}", "ValueError: invalid literal"),
    ],
)
def test_a_file_without_an_algorithm_says_what_to_write(written, text, says):
    path = written(text, f"empty{len(text)}.py")
    with pytest.raises(ValueError, match=says):
        schedule(str(path), Collective("all_reduce", 4, 2**16))


def test_a_file_that_is_none_is_named():
    with pytest.raises(ValueError, match=r"nowhere\.py: no such file"):
        schedule("nowhere.py", Collective("all_reduce", 4, 2**16))


def test_a_file_with_the_name_of_a_known_algorithm_is_refused(written):
    with pytest.raises(ValueError, match="ring all_reduce is known already; rename the file"):
        schedule(str(written(FILES["swing.py"], "ring.py")), Collective("all_reduce", 4, 2**16))
