"""`ringside sweep` as a process: kills, interrupts, and a Dask cluster that disappears."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

from tests.processes import listening
from tests.ringside.studies.sweeps import rows
from tests.tiers import slow_or_proof

LONGER = """
ask: simulate
options: {collective: all_reduce, cluster: "star:{ranks}", algorithm: ring, engine: simpy}
grid:
  ranks: [4, 5, 6, 8]
sample:
  points: 50
  draws:
    size: {from: 1000, to: 1000000, whole: true}
"""

ENDLESS = LONGER.replace("points: 50", "points: 500")
"""A study that no interrupt comes too late for, on a busy machine either."""

CLUSTER = """
import distributed
cluster = distributed.LocalCluster(
    n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0",
    protocol="tcp://", host="127.0.0.1",
)
print(cluster.scheduler_address, flush=True)
input()
"""


def start(*words, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "ringside", "sweep", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **more,
    )  # fmt: skip


def wait_for_parts(folder, count, process):
    while process.poll() is None and len(list(folder.glob("*.parquet"))) < count:
        time.sleep(0.01)


@pytest.mark.proof
def test_kills_lose_and_double_nothing(tmp_path):
    study, folder = tmp_path / "study.yaml", tmp_path / "out"
    study.write_text(LONGER, encoding="utf-8")
    draw = random.Random(5)
    kept = set()
    for kill in (os.kill, os.killpg, os.kill):  # the command alone, or its workers too
        process = start(study, "-o", folder, "--workers", 2)
        wait_for_parts(folder, len(list(folder.glob("*.parquet"))) + draw.randint(1, 6), process)
        time.sleep(draw.random() / 50)
        kill(process.pid, signal.SIGKILL)
        process.communicate()
        found = set(rows(folder)["point"])
        assert kept < found
        kept = found
    process = start(study, "-o", folder, "--json")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(out)["asked_now"] == 200 - len(kept) > 0
    assert list(rows(folder)["point"]) == list(range(200))
    assert {file.suffix for file in folder.iterdir()} <= {".parquet", ".json", ".svg", ".html", ""}


@pytest.mark.parametrize(
    ("number", "kill", "says"),
    slow_or_proof(
        [
            (signal.SIGTERM, os.kill, "terminated"),
            (signal.SIGTERM, os.killpg, "terminated"),  # as a scheduler does
            (signal.SIGINT, os.killpg, "interrupted"),  # as a terminal does
        ]
    ),
)
def test_an_interrupt_keeps_what_is_there_and_says_so(tmp_path, number, kill, says):
    study, folder, temporary = tmp_path / "study.yaml", tmp_path / "out", tmp_path / "temporary"
    study.write_text(ENDLESS, encoding="utf-8")
    temporary.mkdir()
    process = start(study, "-o", folder, "--workers", 2, env=os.environ | {"TMPDIR": str(temporary)})
    wait_for_parts(folder, 4, process)
    kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert out == ""
    assert re.search(rf"ringside: {says}; \d+ complete files are in .*out", err)
    assert re.fullmatch(r"(ringside: .*\n)+", err)
    assert 4 <= len(rows(folder)) < 2000
    assert not os.listdir(temporary)


def starting(folder, study, count):
    """Start a study and wait until enough of its processes import modules."""
    study.write_text(LONGER, encoding="utf-8")
    process = start(study, "-o", folder, "--workers", 2)
    workers, end = [], time.monotonic() + 60
    while len(workers) < count and process.poll() is None and time.monotonic() < end:
        every = [Path(f"/proc/{name}") for name in os.listdir("/proc") if name.isdecimal()]
        workers = [int(one.name) for one in every if _is_worker_of(process.pid, one)]
    assert len(workers) >= count
    return process, workers


@pytest.mark.parametrize("number", slow_or_proof([signal.SIGINT, signal.SIGTERM]))
def test_an_interrupt_while_processes_start_leaves_them_silent(tmp_path, number):
    process, _ = starting(tmp_path / "out", tmp_path / "study.yaml", 2)
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert re.fullmatch(r"(ringside: .*\n)+", err)


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_starts_is_told_as_one(tmp_path):
    process, workers = starting(tmp_path / "out", tmp_path / "study.yaml", 1)
    os.kill(workers[0], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ringside: a process died while it started (" in err
    assert "run the command again to continue" in err
    assert re.fullmatch(r"(ringside: .*\n)+", err)


def _is_worker_of(session, process):
    """Return whether a process is a Dask worker of that session during its imports."""
    try:
        if os.getsid(int(process.name)) != session:
            return False
        spawned = b"spawn_main" in (process / "cmdline").read_bytes()
        return spawned and b"/_asyncio" in (process / "maps").read_bytes()
    except OSError:
        return False


@pytest.mark.slow
def test_a_cluster_that_goes_is_told_and_the_next_one_goes_on(tmp_path):
    study, folder = tmp_path / "study.yaml", tmp_path / "out"
    study.write_text(LONGER, encoding="utf-8")
    scheduler = subprocess.Popen(
        [sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process = start(study, "-o", folder, "--scheduler", scheduler.stdout.readline().strip())
    wait_for_parts(folder, 3, process)
    scheduler.kill()
    scheduler.communicate()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "ringside: the Dask cluster is gone; run the command again to continue" in err
    assert re.fullmatch(r"(ringside: .*\n)+", err)
    kept = len(rows(folder))
    process = start(study, "-o", folder, "--json")
    assert json.loads(process.communicate(timeout=300)[0])["asked_now"] == 200 - kept


@pytest.mark.slow
def test_what_a_study_listens_on_is_this_machines_alone(tmp_path, written):
    study = written(LONGER, "study.yaml")
    process = start(study, "-o", tmp_path / "out", "--workers", 2)
    wait_for_parts(tmp_path / "out", 1, process)
    addresses = listening(process.pid)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert sum(map(bool, addresses.values())) == 3  # the scheduler's process, and two workers
    assert set().union(*addresses.values()) == {"127.0.0.1"}
