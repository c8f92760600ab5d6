"""Every row of a study uses the same files: they are recorded, and changed ones are refused."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.tiers import slow_or_proof

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

import ringside as package
from ringside.studies import run as running
from ringside.studies.folder import MANIFEST, opened
from ringside.studies.inputs import answer_points, digests, noted
from ringside.studies.study import Query, StudyError, made
from ringside.topologies import star
from ringside.topologies.file import dumps
from tests.processes import python
from tests.ringside.workloads import EVEN

JOB = "from further import SIZE\n\ndef main(dist):\n    dist.all_reduce(SIZE * dist.get_world_size())\n"

FILES = {
    "job.py": JOB,
    "further.py": "from deep.sizes import SIZE\n",
    "deep/__init__.py": "",
    "deep/sizes.py": "SIZE = 4096\n",
}
"""A script, what stands beside it, and what that imports."""


PROGRAM = Query("program", {"file": "job.py", "cluster": "star.yaml"})
STUDY = "ask: program\noptions: {file: job.py, cluster: star.yaml}\ngrid: {ranks: [2, 3, 4]}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make a cluster's file and a script with its modules, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, text in {**FILES, "study.yaml": STUDY, "star.yaml": dumps(star(4))}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def program(ranks):
    """Return a study of the script on several numbers of ranks."""
    return made({**PROGRAM._asdict(), "grid": {"ranks": ranks}}, "study")


_out = []


@pytest.fixture
def finished(folder):
    """Make the same folder with the study's rows, once for all tests."""
    if not _out:
        package.sweep("study.yaml", "out", workers=1)
        _out.extend((part.name, part.read_bytes()) for part in Path("out").iterdir())
    Path("out").mkdir(exist_ok=True)
    for name, content in _out:
        (folder / "out" / name).write_bytes(content)
    return folder


def changed(path):
    """Change a file without effect on answers, keeping its time and length."""
    before = path.stat()
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("4", "8", 1) if "4" in text else text + "\n", encoding="utf-8")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_what_answers_are_made_from_is_noted(folder):
    asked = answer_points(PROGRAM, [(0, {"ranks": "2"})], 60.0)
    assert asked.rows[0]["error"] is None
    assert {"star.yaml", *FILES} <= asked.inputs.keys()
    own = {name for name in asked.inputs if name.startswith("ringside:")}
    assert {"ringside:sim/program/record/script.py", "ringside:topologies/load.py"} <= own
    assert asked.inputs.keys() - own == {"star.yaml", *FILES}
    assert digests(asked.inputs) == asked.inputs


MODEL = """
import torch
from parts import Linear

def model():
    return Linear(8, 8), torch.zeros(2, 8)
"""

OTHERS = {
    "parts.py": "from torch.nn import Linear\n",
    "net.py": MODEL,
    "layers.yaml": EVEN,
    "splits.txt": "4 1\n1 4\n",
    "order.csv": "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
}

SHIPPED = "sim/libraries/nccl/shipped/dgx-h100.yaml"


GPT = {"model": "gpt2:64", "cluster": "star:2", "library": "ideal", "device": "a100", "pp": 2, "batch": 2}
ON_H100 = {"collective": "all_reduce", "cluster": "dgx-h100:2", "size": "1M"}


@pytest.mark.parametrize(
    ("ask", "options", "name"),
    [
        ("simulate", ON_H100, f"ringside:{SHIPPED}"),
        ("simulate", {**ON_H100, "calibration": "mine.yaml"}, "mine.yaml"),
        ("simulate", {"collective": "all_to_all", "cluster": "star:2", "splits": "splits.txt"}, "splits.txt"),
        ("train", {"model": "layers.yaml", "cluster": "star:4"}, "layers.yaml"),
        ("train", {"model": "net.py:model", "cluster": "star:4"}, "net.py"),
        ("train", {"model": "net.py:model", "cluster": "star:4"}, "parts.py"),
        ("train", {**GPT, "micro_batch": 1, "schedule": "order.csv"}, "order.csv"),
    ],
)
def test_each_kind_of_file_that_a_question_names_is_noted(folder, ask, options, name):
    pytest.importorskip("torch")
    for other, text in OTHERS.items():
        Path(other).write_text(text, encoding="utf-8")
    shutil.copyfile(Path(package.__file__).parents[1] / SHIPPED, "mine.yaml")
    for _ in range(2):  # a process remembers modules, and what Ringside has read of its own
        answered = answer_points(Query(ask, options), [(0, {})], 60.0)
        assert answered.rows[0]["error"] is None
        assert name in answered.inputs


def test_what_was_read_before_is_noted(folder):
    script = (
        "import ringside; from ringside.studies.inputs import answer_points;"
        "from ringside.studies.study import Query;"
        f"options = {ON_H100};"
        "ringside.CollectiveTime(**options).ask();"
        "print(*answer_points(Query('simulate', options), [(0, {})], 60.0).inputs)"
    )
    assert f"ringside:{SHIPPED}" in python("-c", script).stdout.split()


def test_an_edit_of_the_same_length_in_the_same_second_is_seen(folder, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    study = program([4])
    [before] = rows_of(study, [*study.points()]).values()
    changed(folder / "deep/sizes.py")
    [after] = rows_of(study, [*study.points()]).values()
    assert after > before


def test_a_temporary_file_is_no_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("kept").write_text("a", encoding="utf-8")
    with noted() as found:
        Path("temporary").write_text("a", encoding="utf-8")
        for name in ("kept", "temporary"):
            Path(name).read_text(encoding="utf-8")
        os.listdir()
        Path("temporary").unlink()
    assert {name for name in found if not name.startswith("ringside:")} == {"kept"}


@pytest.mark.parametrize("name", ["star.yaml", "job.py", "further.py", "deep/sizes.py"])
@pytest.mark.parametrize("left", [True, False], ids=["unfinished", "finished"])
def test_a_study_of_changed_files_is_refused_by_name(finished, refused, name, left):
    if left:
        sorted(Path("out").glob("*.parquet"))[-1].unlink()
    kept = {part: part.read_bytes() for part in Path("out").iterdir()}
    changed(finished / name)
    message = refused("sweep study.yaml -o out --workers 1")
    assert f"out: {name}: changed since its rows were made; restore them, or write a new" in message
    assert {part: part.read_bytes() for part in Path("out").iterdir()} == kept


def test_a_file_that_is_gone_is_missed_by_a_study_that_is_not_finished(finished, refused):
    sorted(Path("out").glob("*.parquet"))[-1].unlink()
    Path("star.yaml").unlink()
    assert "out: star.yaml: changed since its rows were made" in refused("sweep", "study.yaml", "-o", "out")


def test_the_same_text_at_another_time_is_no_change(finished):
    whole = package.sweep("study.yaml", "out", workers=1)
    sorted(Path("out").glob("*.parquet"))[-1].unlink()
    for file in ("star.yaml", *FILES):
        shutil.copyfile(file, "copy")
        os.replace("copy", file)
    again = package.sweep("study.yaml", "out", workers=1)
    assert again.drop(columns="elapsed_s").equals(whole.drop(columns="elapsed_s"))


def test_ringsides_own_code_is_an_input(finished, refused):
    manifest = Path("out") / MANIFEST
    content = json.loads(manifest.read_text(encoding="utf-8"))
    assert content["inputs"]["ringside:sim/program/record/script.py"]
    content["inputs"] |= dict.fromkeys(
        ["ringside:sim/program/record/script.py", "ringside:sim/record.py"], "0" * 16
    )
    manifest.write_text(json.dumps(content), encoding="utf-8")
    err = refused("sweep", "study.yaml", "-o", "out")
    assert (
        "out: sim/program/record/script.py of Ringside, sim/record.py of Ringside: changed since its rows"
        in err
    )
    del content["inputs"]
    manifest.write_text(json.dumps(content), encoding="utf-8")
    assert "began it, whose answers may differ" in refused("sweep", "study.yaml", "-o", "out")


def test_a_file_that_changes_while_a_study_runs_ends_it(folder, refused, monkeypatch):
    monkeypatch.setattr(running, "MOST_S", 0.0)
    Path("job.py").write_text(
        "import os\n" + JOB + "    if dist.get_world_size() == 3:\n"
        "        open('further.py', 'a').write('#')\n",
        encoding="utf-8",
    )
    message = refused("sweep study.yaml -o out --workers 1")
    assert "out: further.py: changed since its rows were made" in message


def test_a_file_that_changes_between_points_that_are_asked_together_is_no_input(folder):
    Path("job.py").write_text(f"{JOB}    with open('further.py', 'a') as f: f.write('#')\n", encoding="utf-8")
    study = program([2, 3])
    asked = answer_points(study.query, [*study.points()], 60.0)
    assert [row["error"] for row in asked.rows] == [None, None]
    with (
        opened(Path("out"), study) as kept,
        pytest.raises(StudyError, match=r"further\.py: changed since its rows"),
    ):
        kept.take(asked.inputs)


def test_a_finished_study_is_printed_from_where_nothing_can_be_written(finished, json_of, printed):
    rows = package.sweep("study.yaml", "out", workers=1)
    before = json_of("sweep study.yaml -o out")
    protect()
    for file in ("star.yaml", *FILES):  # which were left elsewhere
        (finished / file).unlink()
    files = {file.name for file in (finished / "out").iterdir()}
    assert json_of("sweep study.yaml -o out") == before
    assert "read only: Is a directory" in printed("sweep study.yaml -o out --html page.html")
    assert Path("page.html").exists()
    assert package.sweep("study.yaml", "out").equals(rows)
    assert {file.name for file in (finished / "out").iterdir()} == files


def test_an_unfinished_study_where_nothing_can_be_written_is_refused(finished, refused):
    sorted(Path("out").glob("*.parquet"))[-1].unlink()
    protect()
    message = refused("sweep study.yaml -o out")
    assert "out: not writable: Is a directory; write another folder after -o" in message


def protect():
    """Make the study read-only; for root this needs a read-only disk."""
    Path("out/.lock").unlink()
    Path("out/.lock").mkdir()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_finished_study_on_a_disk_that_is_only_read_is_printed(finished):
    mount = "mount --bind out out && mount -o remount,bind,ro out"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("may not mount")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount} && {sys.executable} -m ringside sweep study.yaml -o out"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 of 3 points answered" in done.stdout.replace("\n#   ", " ")
    assert "Read-only file system" in done.stdout.replace("\n#   ", " ")


STATES = {
    "deep/sizes.py": ("SIZE = 4096\n", "SIZE = 8192\n"),
    "further.py": ("from deep.sizes import SIZE\n", "from deep.sizes import SIZE\nSIZE += 4096\n"),
}


def rows_of(study, points):
    asked = answer_points(study.query, points, 60.0)
    return {row["point"]: row["makespan_s"] for row in asked.rows}


@pytest.mark.parametrize("seed", slow_or_proof(range(3)))
def test_all_rows_are_those_of_one_state_of_the_files(folder, seed):
    """Files change at random moments between points: that is refused, or nothing came of it."""
    random = np.random.default_rng(seed)
    study = program([1, 2, 3, 4])
    truths = []
    for texts in product(*STATES.values()):
        for name, text in zip(STATES, texts, strict=True):
            Path(name).write_text(text, encoding="utf-8")
        truths.append(rows_of(study, [*study.points()]))
    refusals = 0
    for turn in range(10):
        for _ in range(3):
            for name, texts in STATES.items():
                if random.random() < 0.3:
                    Path(name).write_text(random.choice(texts), encoding="utf-8")
            with opened(Path(f"out{turn}"), study) as kept, suppress(StudyError):
                refusals += 1
                kept.check(digests(kept.inputs))
                left = [point for point in study.points() if point[0] not in kept.done()]
                for point in left[: random.integers(1, 3)]:
                    asked = answer_points(study.query, [point], 60.0)
                    kept.take(asked.inputs)
                    kept.write(asked.rows)
                refusals -= 1
        with opened(Path(f"out{turn}"), study) as kept:
            rows = dict(kept.read()[["point", "makespan_s"]].itertuples(index=False))
        assert any(rows.items() <= truth.items() for truth in truths)
    assert 0 < refusals < 30
