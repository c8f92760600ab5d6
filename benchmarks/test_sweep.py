"""Studies at length: their rate, what workers gain, twenty kills, a Dask cluster started by hand."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

import pandas as pd

NCCL = """
ask: simulate
options: {collective: all_reduce, cluster: "dgx-h100:{nodes}", library: nccl}
grid: {nodes: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]}
sample:
  points: 1000
  draws:
    size: {from: 1000, to: 4000000000, scale: log, whole: true}
"""

SLOW = """
ask: simulate
options: {collective: all_reduce, cluster: star:48, algorithm: ring, engine: simpy}
sample:
  points: POINTS
  draws:
    size: {from: 1000, to: 1000000, whole: true}
"""

pytestmark = pytest.mark.benchmark


def sweep(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "ringside", "sweep", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def finished(*words):
    """What a whole run says, and how long it takes."""
    begun = time.perf_counter()
    process = sweep(*words, "--json")
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(out), time.perf_counter() - begun


def rows(folder):
    parts = [pd.read_parquet(part) for part in folder.rglob("*.parquet")]
    return pd.concat(parts).sort_values("point", ignore_index=True)


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "study.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_ten_thousand_points_of_nccl_take_less_than_a_minute(written, tmp_path):
    _, took = finished(written(NCCL), "-o", tmp_path / "out", "--workers", 2)
    found = rows(tmp_path / "out")
    assert len(found) == 10_000
    assert found["error"].isna().all()
    overhead = (2 * took - found["elapsed_s"].sum()) / len(found)
    print(
        f"10,000 points in {took:.1f} s, {overhead * 1e3:.2f} ms of two processes a point beside the answer"
    )
    assert took < 60
    assert overhead < 5e-3


def test_two_workers_are_quicker_than_one(written, tmp_path):
    study = written(SLOW.replace("POINTS", "600"))
    ratios = []
    for attempt in range(3):
        took = [
            finished(study, "-o", tmp_path / f"{attempt}-{workers}", "--workers", workers)[1]
            for workers in (1, 2)
        ]
        each = rows(tmp_path / f"{attempt}-1")["elapsed_s"].median()
        ratios.append(took[0] / took[1])
        print(f"points of {each * 1e3:.0f} ms: {took[0]:.1f} s, {took[1]:.1f} s, {ratios[-1]:.2f} times")
        assert each >= 0.05
    assert max(ratios) >= 1.6


def test_twenty_kills_lose_and_double_nothing(written, tmp_path):
    study, folder = written(SLOW.replace("POINTS", "1200")), tmp_path / "out"
    _, whole_s = finished(study, "-o", tmp_path / "whole", "--workers", 2)
    draw = random.Random(0)
    kept, killed = set(), 0
    for kill in range(20):
        process = sweep(study, "-o", folder, "--workers", 2)
        time.sleep(draw.uniform(0, whole_s / 5))
        killed += process.poll() is None
        (os.kill if kill % 2 else os.killpg)(process.pid, signal.SIGKILL)  # the command alone, or all
        process.communicate()
        found = set(rows(folder)["point"]) if list(folder.glob("*.parquet")) else set()
        assert kept <= found
        print(f"kill {kill}: {len(found)} points")
        kept = found
    assert killed >= 15, "most came while it ran"
    told, _ = finished(study, "-o", folder, "--workers", 2)
    assert told["asked_now"] == 1200 - len(kept)
    one, other = (rows(of).drop(columns="elapsed_s") for of in (folder, tmp_path / "whole"))
    assert list(one["point"]) == list(range(1200))
    assert one.equals(other)


def test_a_cluster_started_by_hand_gives_the_same_files(written, tmp_path):
    study = written(SLOW.replace("POINTS", "100"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    dask = str(Path(sys.executable).with_name("dask"))
    scheduler = [dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker = [dask, "worker", address, "--nthreads", "1", "--no-dashboard"]
    started = [
        subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for words in (scheduler, worker, worker)
    ]
    try:
        finished(study, "-o", tmp_path / "theirs", "--scheduler", address)
    finally:
        for one in reversed(started):
            one.terminate()
        for one in started:
            one.wait()
    finished(study, "-o", tmp_path / "ours", "--workers", 2)
    names = [sorted(part.name for part in (tmp_path / of).glob("*.parquet")) for of in ("ours", "theirs")]
    assert names[0] == names[1]
    for name in names[0]:
        ours, theirs = (pd.read_parquet(tmp_path / of / name) for of in ("ours", "theirs"))
        assert ours.drop(columns="elapsed_s").equals(theirs.drop(columns="elapsed_s"))
