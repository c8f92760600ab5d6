"""The wheel on its own: it runs, and a type checker accepts it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

TOP = Path(__file__).parents[2]

GRAPH = "networkx.classes.digraph.DiGraph[str, dict[str, Any], dict[str, Any]]"
"""What NetworkX lets people hang on nodes and edges is its own affair."""

PROGRAM = """
from pathlib import Path

import ringside
from ringside import AlgorithmChoice, Collective, StepTime, calibrate, compare, load, predict, prove
from ringside import read, rows, schedule

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
reveal_type(AlgorithmChoice(collective="all_reduce", cluster="dgx-h100", nodes=(1, 2)).cluster)
reveal_type(StepTime(model="resnet50", cluster="star:4").step().step_s)
reveal_type(prove(schedule("ring", Collective("all_reduce", 4, 2**20))))
reveal_type(ringside.load)
reveal_type(ringside.CollectiveMeasurement)
reveal_type(ringside.predict)
reveal_type(ringside.read)
reveal_type(ringside.rows)
reveal_type(ringside.compare)
reveal_type(ringside.calibrate)
"""

WRONG = """
import ringside
ringside.forecast
ringside.predict("all_reduce", 4)
"""


PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")

EXTRAS = {"3.11": "[all]", "3.12": "", "3.13": ""}
"""What is installed where: all of it with torch under the first, the core under the others."""

*_, NEWEST = EXTRAS
"""No proof: what each change is installed under. Setting up to test installs all of it from the checkout."""

ASKED = """
simulate all_reduce --cluster dgx-h100:2 --size 64M
pick all_reduce --cluster dgx-h100 --nodes 1,2
train --model resnet50 --cluster dgx-a100:2 --plot step.png
topo dgx-h100:2
"""
"""What the core answers without torch."""

MEASURED = "measure all_reduce --backend gloo -g 2 -b 1K -e 1K -o rows.jsonl"


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MYPYPATH")}
    return subprocess.run([*map(str, words)], cwd=cwd, env=clean, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the source distribution, and the wheel from it."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-W", "error", "-m", "build", "--outdir", folder, TOP, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "warn" not in (done.stdout + done.stderr).lower()
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def python(built: tuple[Path, Path]) -> Path:
    """Make an interpreter with the wheel and its dependencies, but without this checkout."""
    folder = built[1].parent
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    installed = run(*PIP, "--python", python, "install", "--no-deps", built[1], cwd=folder)
    assert installed.returncode == 0, installed.stderr
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    # a folder that is named so is looked into, but its own .pth files, ours among them, are not
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def checked(python: Path, folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    cache, known = python.parents[2] / "cache", TOP / ".mypy_cache"
    if known.is_dir() and not cache.exists():  # of dependencies, where the checkout's own types were checked
        shutil.copytree(known, cache)
    return run(*mypy, "--cache-dir", cache, "program.py", cwd=folder)


def test_it_is_the_wheel_that_is_imported(python: Path, tmp_path: Path) -> None:
    code = "import ringside.sim; print(ringside.__file__, ringside.sim.__file__)"
    done = run(python, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(place.startswith(str(python.parents[1])) for place in done.stdout.split())
    assert run(python, "-m", "ringside", "topo", "star:4", cwd=tmp_path).returncode == 0


@pytest.mark.proof
def test_a_type_checker_knows_every_type_and_none_is_any(python: Path, tmp_path: Path) -> None:
    done = checked(python, tmp_path, PROGRAM)
    assert "Success" in done.stdout, done.stdout + done.stderr
    types = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert len(types) == PROGRAM.count("reveal_type(")
    bare = [text.replace(GRAPH, "Graph") for text in types]
    assert not [text for text in bare if re.search(r"\bAny\b", text)]
    assert bare[:5] == ["str", "Graph", "ringside.sim.libraries.library.Prediction", "float", "float"]


@pytest.mark.proof
def test_a_type_checker_refuses_what_is_wrong(python: Path, tmp_path: Path) -> None:
    done = checked(python, tmp_path, WRONG)
    assert 'Module has no attribute "forecast"' in done.stdout
    assert 'Argument 1 to "predict" has incompatible type "str"; expected "Collective"' in done.stdout


def tracked() -> set[str]:
    """Return the files of a checkout, by their paths through the symbolic links."""
    names = set(run("git", "ls-files", cwd=TOP).stdout.splitlines())
    links = {
        str(link.relative_to(TOP)): link.resolve().name
        for link in (TOP / "ringside").iterdir()
        if link.is_symlink()
    }
    for link, folder in links.items():
        moved = {name for name in names if name.startswith(f"{folder}/")}
        names = names - moved - {link} | {f"ringside/{name}" for name in moved}
    return names


def test_the_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(built[1]).namelist())
    held = {name for name in names if ".dist-info/" not in name}
    assert held == {name for name in tracked() if name.startswith("ringside/")}
    assert {"ringside/py.typed", "ringside/sim/py.typed"} <= held


def test_the_source_distribution_holds_what_git_does(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as packed:
        held = {name.partition("/")[2] for name in packed.getnames()} - {"PKG-INFO"}
    assert held <= tracked()
    assert {"LICENSE", "README.md", "constraints.txt", "tests/conftest.py", "ringside/cli.py"} <= held
    assert "ringside/sim/collective.py" in held


def test_the_extras_that_are_told_of_exist(built: tuple[Path, Path]) -> None:
    (name,) = (name for name in zipfile.ZipFile(built[1]).namelist() if name.endswith("/METADATA"))
    told = zipfile.ZipFile(built[1]).read(name).decode()
    assert {"real", "fast", "net", "docs", "all"} <= set(
        re.findall(r"^Provides-Extra: (\S+)$", told, re.MULTILINE)
    )


def interpreter(version: str) -> Path | str:
    """Return the path of a Python of that version, or the reason why there is none."""
    found = shutil.which(f"python{version}")
    if found is None:
        return f"python{version} is not on the PATH"
    # pyenv's own python3.12 asks this variable which 3.12 it is
    words = [found, "-c", "import sys; print(sys.executable)"]
    asked = subprocess.run(
        words, env={**os.environ, "PYENV_VERSION": version}, capture_output=True, text=True, check=False
    )
    return Path(asked.stdout.strip()) if asked.returncode == 0 else f"{found} does not run: {asked.stderr}"


def installed(wheel: str, base: Path, folder: Path) -> Path:
    """Return a Python with the wheel, and its extras in brackets, in an environment of its own."""
    assert run(base, "-m", "venv", "--without-pip", folder, cwd=folder.parent).returncode == 0
    python = folder / "bin" / "python"
    words = ("--python", python, "install", "--no-compile", "--only-binary", ":all:")
    done = run(*PIP, *words, "-c", TOP / "constraints.txt", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return python


@pytest.mark.parametrize(
    "version",
    [version if version == NEWEST else pytest.param(version, marks=pytest.mark.proof) for version in EXTRAS],
)
def test_in_an_empty_environment_it_does_what_its_extras_are_for(
    built: tuple[Path, Path], version: str, tmp_path: Path
) -> None:
    base = interpreter(version)
    if isinstance(base, str):
        pytest.skip(base)
    python = installed(f"{built[1]}{EXTRAS[version]}", base, tmp_path / version)
    assert run(*PIP, "--python", python, "check", cwd=tmp_path).returncode == 0
    measured = run(python, "-m", "ringside", *MEASURED.split(), cwd=tmp_path)
    if EXTRAS[version]:
        assert measured.returncode == 0, measured.stderr
        return
    install = "write pip install 'ringside-sim[real]', or in a checkout pip install -e '.[real]'"
    message = f"ringside: torch is not installed; {install}\n"
    assert (measured.returncode, measured.stderr) == (2, message)
    for command in ASKED.strip().splitlines():
        done = run(python, "-W", "error", "-m", "ringside", *command.split(), cwd=tmp_path)
        assert (done.returncode, {*done.stderr.splitlines()} - {"ringside: simulating"}) == (0, set()), (
            command
        )
        assert done.stdout
