"""The wheel, as somebody sees it who has nothing else of Ringside: it runs, and a type checker knows it."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

TOP = Path(__file__).parents[2]

GRAPH = "networkx.classes.digraph.DiGraph[str, dict[str, Any], dict[str, Any]]"
"""What NetworkX lets people hang on nodes and edges is its own affair."""

PROGRAM = """
from pathlib import Path

import ringside
from ringside import Collective, calibrate, compare, load, pick, predict, prove, read, rows, schedule, train

cluster = load("star:4", {"latency": "5us"})
found = predict(Collective("all_reduce", 4, 2**20), cluster, algorithm="ring")
records = read(Path("log.txt"), "other.txt")
reveal_type(ringside.__version__)
reveal_type(cluster)
reveal_type(found)
reveal_type(found.time_s)
reveal_type(found.busbw)
reveal_type(found.timeline)
reveal_type(rows([found]))
reveal_type(records)
reveal_type(compare(records, "star:4"))
reveal_type(calibrate(records, "star:4").fits[0].parameters.alpha)
reveal_type(pick("all_reduce", "dgx-h100", [1, 2], [1024]))
reveal_type(train("resnet50", "star:4").step_s)
reveal_type(prove(schedule("ring", Collective("all_reduce", 4, 2**20))))
reveal_type(ringside.load)
reveal_type(ringside.measure)
reveal_type(ringside.pick)
reveal_type(ringside.predict)
reveal_type(ringside.read)
reveal_type(ringside.rows)
reveal_type(ringside.train)
reveal_type(ringside.compare)
reveal_type(ringside.calibrate)
"""

WRONG = """
import ringside
ringside.forecast
ringside.predict("all_reduce", 4)
"""


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MYPYPATH")}
    return subprocess.run([*map(str, words)], cwd=cwd, env=clean, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the wheel, and what Ringside depends on, but not this checkout."""
    folder = tmp_path_factory.mktemp("stranger")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    built = run(*pip, "wheel", "--no-deps", "--wheel-dir", folder, TOP, cwd=folder)
    assert built.returncode == 0, built.stderr
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    installed = run(*pip, "--python", python, "install", "--no-deps", wheel, cwd=folder)
    assert installed.returncode == 0, installed.stderr
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    # a folder that is named so is looked into, but its own .pth files, ours among them, are not
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def checked(python: Path, folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    return run(*mypy, "--cache-dir", python.parents[2] / "cache", "program.py", cwd=folder)


def test_it_is_the_wheel_that_is_imported(python: Path, tmp_path: Path) -> None:
    done = run(python, "-c", "import ringside, sim; print(ringside.__file__, sim.__file__)", cwd=tmp_path)
    assert all(place.startswith(str(python.parents[1])) for place in done.stdout.split()), done.stderr
    assert run(python, "-m", "ringside", "topo", "star:4", cwd=tmp_path).returncode == 0


def test_a_type_checker_knows_every_type_and_none_is_any(python: Path, tmp_path: Path) -> None:
    done = checked(python, tmp_path, PROGRAM)
    assert "Success" in done.stdout, done.stdout + done.stderr
    types = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert len(types) == PROGRAM.count("reveal_type(")
    bare = [text.replace(GRAPH, "Graph") for text in types]
    assert not [text for text in bare if re.search(r"\bAny\b", text)]
    assert bare[:5] == ["str", "Graph", "sim.libraries.library.Prediction", "float", "float"]


def test_a_type_checker_refuses_what_is_wrong(python: Path, tmp_path: Path) -> None:
    done = checked(python, tmp_path, WRONG)
    assert 'Module has no attribute "forecast"' in done.stdout
    assert 'Argument 1 to "predict" has incompatible type "str"; expected "Collective"' in done.stdout
