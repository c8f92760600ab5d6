"""A library is an entry of one table: no other code tests its name, and another one can be added."""

import ast
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import ringside
from ringside.sim.libraries import ideal, scheduled
from ringside.sim.libraries.find import LIBRARIES, LibraryEntry
from ringside.sim.libraries.rules import NCCL

ROOMS = ("ringside", "sim", "real", "validation", "topologies")
ROOT = Path(ringside.__file__).parents[1]
OTHERS = ("--cluster", "star:4", "--library", "rccl")


class Rccl(ideal.Ideal):
    """The textbook's schedules under another name."""

    name = "rccl"


algorithms, build, beside = ideal.algorithms, ideal.build, ideal.beside
bind = partial(scheduled.bind, Rccl)


def _names(node: ast.AST) -> set[str]:
    """Return libraries among the literals of a comparison's side, or the keys of a dict."""
    some = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {str(one.value) for one in some if isinstance(one, ast.Constant)} & set(LIBRARIES)


def _asks(node: ast.AST) -> bool:
    """Return whether an expression distinguishes libraries by their names or classes."""
    match node:
        case ast.Compare(left, _, comparators):
            return any(map(_names, (left, *comparators)))
        case ast.MatchValue(value):
            return bool(_names(value))
        case ast.Dict(keys):
            return len(set[str]().union(*(_names(key) for key in keys if key))) > 1
        case ast.Call(ast.Name("isinstance"), [_, kinds]):
            classes = {one.id for one in ast.walk(kinds) if isinstance(one, ast.Name)}
            return bool({one.lower() for one in classes} & set(LIBRARIES))
    return False


def _asking(room: str) -> Iterator[str]:
    for path in (ROOT / room).rglob("*.py"):
        place = path.resolve().relative_to(ROOT.resolve())
        if place.parts[:2] != ("sim", "libraries"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if _asks(node):
                    yield f"{place}:{getattr(node, 'lineno', 0)}"


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_outside_asks_for_a_library_by_its_name(room: str) -> None:
    assert list(_asking(room)) == []


@pytest.mark.parametrize(
    "text",
    [
        'library.name == "nccl"', 'name in ("ideal", "mpi")', '"gloo" != backend', "isinstance(one, Nccl)",
        "isinstance(one, Gloo | Given)", '{"gloo": 2, "nccl": 1}',
    ],
)  # fmt: skip
def test_what_asks_is_seen(text: str) -> None:
    assert _asks(ast.parse(text, mode="eval").body)


@pytest.fixture
def rccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a library: an entry of the table, and its module."""
    entry = LibraryEntry(path=__name__, title="RCCL", rules=NCCL, overlaps=True)
    monkeypatch.setitem(LIBRARIES, "rccl", entry)


@pytest.fixture
def answer(rccl, monkeypatch, capsys, tmp_path):
    """Return the JSON that a command prints in an empty folder."""
    from ringside.__main__ import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text("def main(dist):\n    dist.all_reduce(1 * MiB)\n    dist.barrier()\n")

    def ask(*argv):
        monkeypatch.setattr("sys.argv", ["ringside", *argv, "--json"])
        with pytest.raises(SystemExit) as end:
            main()
        out = capsys.readouterr()
        assert not end.value.code, out.err
        return json.loads(out.out)

    return ask


@pytest.mark.parametrize(
    "question",
    [
        ("simulate", "all_reduce", "--size", "1M"),
        ("simulate", "all_reduce", "--size", "1M", "--set", "bandwidth=1GB/s"),
        ("train", "--model", "resnet50", "--device", "h100"),
        ("train", "--model", "resnet50", "--device", "h100", "--strategy", "fsdp"),
        ("whatif", "all_reduce", "--size", "1M"),
    ],
)
def test_one_more_library_answers_as_the_one_whose_schedules_it_has(answer, question) -> None:
    own = json.dumps(answer(*question, *OTHERS))
    assert own.replace("rccl", "ideal") == json.dumps(answer(*question, *OTHERS[:3], "ideal"))


def test_one_more_library_is_picked_from_with_a_default_of_its_own(answer) -> None:
    rows = answer("pick", "all_reduce", "--cluster", "star", "--nodes", "4", *OTHERS[2:])["rows"]
    assert all(row["default"] for row in rows)
    choice = ringside.AlgorithmChoice(
        collective="all_reduce", cluster="star:4", size=(2**20,), library="rccl"
    )
    (pick,) = choice.ask().picks
    assert pick.algorithm == rows[[row["size_bytes"] for row in rows].index(2**20)]["algorithm"]


def test_one_more_library_stands_among_the_collectives(answer) -> None:
    rows = answer("collectives", "--cluster", "star:4", "--prove", "4")["rows"]
    of = {name: [row for row in rows if row["library"] == name] for name in ("ideal", "rccl")}
    assert [row | {"library": "ideal"} for row in of["rccl"]] == of["ideal"]


def test_one_more_library_carries_programs_by_the_rules_of_its_entry(answer) -> None:
    found = answer("program", "job.py", "-g", "4", *OTHERS)
    assert found["verdict"] == "proved"
    assert found["makespan_s"] > 0


def test_one_more_library_trains_from_python(rccl: None) -> None:
    step = ringside.train("resnet50", "star:4", device="h100", library="rccl")
    assert step.step_s == ringside.train("resnet50", "star:4", device="h100", library="ideal").step_s
