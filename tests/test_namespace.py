"""Ringside is one package: others may have packages named sim, real, topologies or validation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
ROOMS = ("real", "sim", "topologies", "validation")

SCRIPT = """
import sim, real, topologies, validation, tests
import ringside
from ringside.sim.collective import Collective
assert {sim.mine, real.mine, topologies.mine, validation.mine, tests.mine} == {True}
answer = ringside.predict(Collective("all_reduce", 8, 1 << 20), ringside.star(8))
print(answer.time_s)
"""


@pytest.fixture
def neighbours(tmp_path):
    """Make a folder with a user's own packages of the same names."""
    for name in (*ROOMS, "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("mine = True\n", encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


def run(folder, *words, path=None):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, os.environ.get("PYTHONPATH"))))}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "words",
    [
        ("script.py",),
        ("-c", SCRIPT),  # the folder is first on the path, as in a notebook
        ("-m", "ringside", "simulate", "all_reduce", "--cluster", "star:8", "--size", "1M", "--json"),
    ],
    ids=["script", "notebook", "command"],
)
def test_a_folder_may_have_packages_of_our_names(neighbours, words):
    done = run(neighbours, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
def test_a_real_run_works_beside_packages_of_our_names(neighbours):
    pytest.importorskip("torch")
    words = "measure all_reduce --backend gloo -g 2 -b 1K -e 1K -o rows.jsonl"
    done = run(neighbours, "-m", "ringside", *words.split())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_not_imported_by_its_bare_name(room):
    done = run(TOP, "-c", f"import {room}")
    assert done.stderr.endswith(
        f"ImportError: import ringside.{room}; the folder {room} of a checkout is part of that package\n"
    )


def test_a_checkout_without_symbolic_links_says_so(tmp_path):
    shutil.copytree(TOP / "ringside", tmp_path / "ringside", symlinks=True)
    for room in ROOMS:
        (tmp_path / "ringside" / room).unlink()
        (tmp_path / "ringside" / room).write_text(f"../{room}", encoding="utf-8")
    done = run(tmp_path, "-m", "ringside", "--help", path=str(tmp_path))
    assert done.returncode != 0
    assert "lacks its symbolic links: run git config core.symlinks true" in done.stderr.splitlines()[-1]
