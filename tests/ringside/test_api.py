"""The public API in Python: lazy, typed, with rows."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import ringside
from ringside.topologies.extras import install
from tests.processes import python
from tests.tiers import slow_or_proof

TOP = Path(__file__).parents[2]
PUBLIC = sorted(set(ringside.__all__) - {"__version__"})
LOG = "tests/validation/data/v2.0_all_reduce.log"


def run(code: str) -> str:
    return python("-c", code, cwd=TOP).stdout


def test_every_name_is_there_and_listed() -> None:
    assert set(PUBLIC) <= set(dir(ringside))
    assert "load" in run("import ringside; print(*dir(ringside))").split()  # before anything was fetched
    for name in PUBLIC:
        assert getattr(ringside, name) is not None


@pytest.mark.parametrize("first", ["Cell", "Result", "rows"])
def test_names_do_not_depend_on_what_was_asked_for_before(first: str) -> None:
    run(f"import ringside; ringside.{first}; assert callable(ringside.rows); assert callable(ringside.load)")


def test_no_name_has_another_meaning_for_type_checkers() -> None:
    """What mypy sees and what Python fetches are two lists in one file; they are of one mind."""
    import ast

    tree = ast.parse((TOP / "ringside/__init__.py").read_text(encoding="utf-8"))
    (branch,) = (
        node for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )  # fmt: skip
    seen = {
        alias.asname or alias.name: f"{statement.module}:{alias.name}"
        for statement in branch.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    for statement in branch.body:
        if isinstance(statement, ast.Assign):
            seen[ast.unparse(statement.targets[0])] = seen.pop(ast.unparse(statement.value))
    home = {
        name: place if ":" in place else f"{place}:{name}" for name, place in vars(ringside)["_HOME"].items()
    }
    assert seen == home


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'forecast'; it has .*predict"):
        ringside.forecast  # noqa: B018


def test_the_version_is_the_installed_one() -> None:
    assert f'version = "{ringside.__version__}"' in (TOP / "pyproject.toml").read_text(encoding="utf-8")


def results() -> dict[str, list[ringside.Result]]:
    records = ringside.read(TOP / "validation/published/abci2_a100_all_reduce_n2_r16.json")
    collective = ringside.Collective("all_reduce", 4, 2**20)
    choice = ringside.AlgorithmChoice(
        collective="all_reduce", cluster="star", nodes=(2, 4), size=(2**10, 2**20)
    )
    return {
        "predict": [
            ringside.predict(collective, ringside.star(4), traced=traced) for traced in (True, False)
        ],
        "pick": list(choice.ask().picks),
        "train": [ringside.train("resnet50", "star:2"), ringside.train("resnet50", "star:4", library="gloo")],
        "read": list(records),
        "compare": list(ringside.compare(records, "abci-a100")),
        "calibrate": [ringside.calibrate(records, "abci-a100").nccl],
        **pairs(),
    }


def pairs() -> dict[str, list[ringside.Result]]:
    """Return measurements of eight nodes: h3 is slow, h0 and h6 are slow together."""
    lines = [
        f"h{i},h{j},16777216,{800 + 2 * (i * j % 5) + 300 * (3 in (i, j)) + 900 * ((i, j) == (6, 0))}"
        for i in range(8)
        for j in range(i)
    ]
    with TemporaryDirectory() as folder:
        file = Path(folder, "pairs.csv")
        file.write_text("\n".join(["node_a,node_b,size_bytes,time_us", *lines]), encoding="utf-8")
        verdict = ringside.SlowNodes(files=[file], ranks=8).ask()
    return {
        "slow nodes": list(verdict.nodes),
        "slow pairs": list(verdict.pairs),
        "matrices": list(verdict.matrices),
    }


@pytest.fixture(scope="module")
def found() -> dict[str, list[ringside.Result]]:
    return results()


COLUMNS = {
    "predict": {"collective", "ranks", "nbytes", "algorithm", "engine", "time_s", "busbw"},
    "pick": {"nodes", "nbytes", "algorithm", "time_s", "margin", "too_close", "next_best"},
    "train": {"workload", "ranks", "step_s", "exposed_s", "throughput", "overlap_efficiency"},
    "read": {"library", "collective", "ranks", "nbytes", "time_s", "busbw", "spread"},
    "compare": {"library", "nbytes", "time_s", "predicted_s", "error", "set"},
    "slow nodes": {"node", "factor", "collective", "gpus_per_node", "nbytes"},
    "slow pairs": {"nodes", "collective", "gpus_per_node", "factor", "sizes"},
    "matrices": {"collective", "gpus_per_node", "nbytes", "median_s", "noise", "pairs", "missing"},
    "calibrate": {"machine", "rows", "sites", "noise", "median_error"},
}


@pytest.mark.parametrize("function", COLUMNS)
def test_rows_are_a_table_of_plain_values(found: dict[str, list[ringside.Result]], function: str) -> None:
    table = ringside.rows(found[function])
    assert len(table) == len(found[function]) > 0
    assert COLUMNS[function] <= set(table[0])
    for row in table:
        assert row.keys() == table[0].keys()
        assert all(value is None or type(value) in (str, int, float, bool) for value in row.values())


@pytest.mark.parametrize("function", COLUMNS)
def test_pandas_takes_them(found: dict[str, list[ringside.Result]], function: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = ringside.rows(found[function])
    frame = pandas.DataFrame(table)
    assert frame.shape == (len(table), len(table[0]))


def test_what_is_no_result_has_no_row() -> None:
    with pytest.raises(TypeError, match="pass what predict, pick, train, read or compare returned"):
        ringside.rows([7])  # type: ignore[list-item]


@pytest.mark.parametrize("library", ["mpich", "gloo"])
def test_nothing_to_pick_is_said(library: str) -> None:
    with pytest.raises(ValueError, match="write ideal, nccl or mpi"):
        ringside.AlgorithmChoice(collective="all_reduce", cluster="star:2", library=library).ask()


@pytest.mark.parametrize(
    "words", slow_or_proof(["train --model resnet50 --cluster star:2", f"compare {LOG} --cluster star"])
)
def test_what_needs_no_torch_runs_without_it(words: str) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
sys.argv = {["ringside", *words.split()]!r}
from ringside.__main__ import main
main()
"""
    assert run(code).startswith("#")


@pytest.mark.parametrize(
    "command",
    slow_or_proof(
        [
            "measure all_reduce -g 2 -o rows.jsonl",
            f"train --model {TOP}/examples/models.py:transformer --cluster star:2",
            "demo -o report",
        ]
    ),
)
def test_what_needs_torch_says_so_without_it_and_writes_nothing(command: str, tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
sys.argv = ["ringside", *{command!r}.split()]
from ringside.__main__ import main
main()
"""
    done = python("-c", code, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"ringside: torch is not installed; {install('real')}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.gloo
def test_measure_gives_records_as_they_come() -> None:
    pytest.importorskip("torch")
    seen: list[ringside.Record] = []
    question = ringside.CollectiveMeasurement(collective="all_reduce", size="4K,16K", iterations=2, warmup=1)
    answer = question.ask(on_record=seen.append)
    assert [record.nbytes for record in answer.records] == [2**12, 2**14]
    assert seen == answer.records


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_reference_entry_with_an_example(name: str) -> None:
    page = (TOP / "docs/reference/api.md").read_text(encoding="utf-8")
    entry = re.search(rf"^::: [\w.]+\.{_original(name)}\n\n```python\n(.*?)```", page, re.S | re.M)
    assert entry, name
    assert re.search(rf"\b{name}\b", entry[1])


def _original(name: str) -> str:
    """Return the name by which the module defines a public one."""
    original: str = getattr(getattr(ringside, name), "__name__", name)
    return original if name.islower() else name
