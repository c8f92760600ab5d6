"""Defects are never reported as user errors, nor user errors as defects."""

from collections.abc import Callable, Generator

import pytest
import simpy
from pydantic import TypeAdapter

from ringside.errors import exit_code
from ringside.sim.collective import kind_of
from ringside.sim.libraries.library import check_time
from ringside.sim.record import RecordError
from ringside.topologies import load
from tests.processes import python


def missing(name: str) -> Callable[[], None]:
    def miss() -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return miss


def raised(error: type[Exception]) -> Callable[[], None]:
    """Raise a defect in a module other than the product's."""

    def fail() -> None:
        raise error("no word for people")

    return fail


def in_a_process() -> None:
    def process(env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        yield env.timeout(1)
        kind_of("all_reduces")

    env = simpy.Environment()
    env.process(process(env))
    env.run()


USERS = {
    "a word that is not known": lambda: kind_of("all_reduces"),
    "a class of ours": lambda: load("stern:4"),
    "a class of ours, wherever it is raised": raised(RecordError),
    "in a simulated process": in_a_process,
    "no such file": lambda: open("no/such/file"),  # noqa: SIM115
    "no torch": missing("torch"),
    "no part of an optional one": missing("pyroute2.netns"),
}

DEFECTS = {
    "the interpreter's ValueError": lambda: int("seven"),
    "pydantic's ValueError": lambda: TypeAdapter(int).validate_python("seven"),
    "a ValueError that is not ours": raised(ValueError),
    "a RuntimeError that is not ours": raised(RuntimeError),
    "a key": lambda: {}["key"],
    "an index": lambda: [][0],
    "a type": lambda: len(7),  # type: ignore[arg-type]
    "an attribute": lambda: object().attribute,  # type: ignore[attr-defined]
    "an assertion": raised(AssertionError),
    "a recursion": raised(RecursionError),
    "a division": lambda: 1 / 0,
    "a law": lambda: check_time("all_reduce", -1.0, {}),
    "a module of ours": missing("sim.nothing"),
    "a dependency that must be there": missing("numpy"),
}


def caught(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("case", USERS)
def test_what_the_user_can_put_right_exits_2(case: str) -> None:
    assert exit_code(caught(USERS[case])) == 2


@pytest.mark.parametrize("case", DEFECTS)
def test_what_only_we_can_put_right_exits_70(case: str) -> None:
    assert exit_code(caught(DEFECTS[case])) == 70


def test_no_memory_is_nobodys_mistake() -> None:
    assert exit_code(MemoryError()) == 1


def test_a_value_error_from_inside_our_own_code_is_a_defect_unless_we_raised_it(monkeypatch) -> None:
    """The frame is one of ours in both; only one of them has a raise statement."""
    code = compile("def broken(): return int('seven')\ndef meant(): raise ValueError('write 7')", "x", "exec")
    module = {"__name__": "ringside.sim.made_up"}
    exec(code, module)
    assert exit_code(caught(module["broken"])) == 70
    assert exit_code(caught(module["meant"])) == 2


@pytest.fixture
def broken(monkeypatch):
    """Return a command line whose command has a defect."""

    def app() -> None:
        {}["key"]

    monkeypatch.setattr("ringside.cli.app", app)


def test_a_defect_is_called_one_and_says_how_to_report_it(broken, ringside, monkeypatch) -> None:
    monkeypatch.delenv("RINGSIDE_DEBUG", raising=False)
    code, out, err = ringside("topo")
    assert (code, out) == (70, "")
    assert "this is a defect of Ringside, not of your input: KeyError: 'key'" in err
    assert "report it" in err
    assert "RINGSIDE_DEBUG=1" in err
    assert "Traceback" not in err


def test_the_traceback_is_there_for_whoever_asks(broken, ringside, monkeypatch) -> None:
    monkeypatch.setenv("RINGSIDE_DEBUG", "1")
    code, _, err = ringside("topo")
    assert code == 70
    assert 'in app\n    {}["key"]' in err


def test_the_traceback_of_the_users_mistakes_too(ringside, monkeypatch) -> None:
    monkeypatch.setenv("RINGSIDE_DEBUG", "1")
    code, _, err = ringside("topo", "stern:4")
    assert code == 2
    assert "in maker_of" in err
    assert "or a YAML file's name" in err.splitlines()[-1]


def test_started_as_a_module_it_knows_itself() -> None:
    done = python("-m", "ringside", "topo", "stern:4", check=False)
    assert done.returncode == 2, done.stderr
