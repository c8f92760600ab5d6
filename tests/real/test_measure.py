import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.processes import descendants, listening

pytest.importorskip("torch")
from ringside.real.collective.measure import Measurement, measure
from ringside.real.launch.follow import MeasureError
from ringside.real.launch.forks import Forks
from ringside.real.launch.torchrun import WorldSpec
from ringside.sim.record import read_lines, write
from tests.ringside.wrapping import unwrapped
from tests.tiers import slow_or_proof

pytestmark = pytest.mark.gloo


@pytest.fixture(scope="module")
def forks():
    with Forks() as shared:
        yield shared


def start(folder, words, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "ringside", *words.split()],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def records(folder):
    return read_lines((folder / "out.jsonl").read_text(), "out.jsonl")


def workers(process):
    """Return the ranks of a running measurement, in order."""
    found = {}
    for child in descendants(process.pid):
        with suppress(psutil.Error):
            if "ringside.real.collective.worker" in child.cmdline() and "RANK" in child.environ():
                found[int(child.environ()["RANK"])] = child.pid
    return [found[rank] for rank in sorted(found)]


def wait_for_records(folder, process, ranks):
    """Wait for the first record; return the process ids of the ranks."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "out.jsonl").exists() and len(workers(process)) == ranks:
            return workers(process)
        time.sleep(0.05)
    raise AssertionError(process.communicate())


def gone(pids):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.05)
    return False


LONG = "measure all_reduce -g 2 -o out.jsonl -b 4K -e 64M -n 300"


def test_measure_adds_checked_records_to_a_file(forks, tmp_path):
    before = []
    measure(Measurement(collective="all_gather", world=WorldSpec(2), sizes=[1024]), before.append, forks)
    write(before, tmp_path / "out.jsonl")
    words = "measure all_reduce -g 2 -o out.jsonl -b 4K -e 64K -f 4 -n 5 --algorithm double_binary_tree"
    code, out, err = finish(start(tmp_path, words))
    assert code == 0, err
    first, *rows = records(tmp_path)
    assert [first] == before
    assert [row.nbytes for row in rows] == [4096, 16384, 65536]
    for row in rows:
        assert (row.library, row.backend, row.ranks) == ("ideal", "gloo", 2)
        assert row.algorithm == "double_binary_tree"
        assert 0 < row.min_s <= row.time_s <= row.p95_s <= row.max_s
        assert row.fingerprint["GLOO_SOCKET_IFNAME"] == "lo"
        assert row.fingerprint["torch"]
    assert "all_reduce by ideal/double_binary_tree over gloo on 2 ranks" in unwrapped(out)
    assert not err


@pytest.mark.parametrize(
    "kind",
    ["all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all", "sendrecv"],
)
def test_the_library_does_every_collective(forks, kind):
    rows = []
    what = Measurement(collective=kind, world=WorldSpec(3), sizes=[1000, 2000, 4000], iterations=2)
    measure(what, rows.append, forks)
    assert [(row.library, row.ranks) for row in rows] == [("gloo", 3)] * 3
    assert {row.fingerprint["started_by"] for row in rows} == {"fork"}
    if kind in ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"):
        assert [row.nbytes for row in rows] == [996, 1992, 3996]


@pytest.mark.slow
def test_two_agents_on_loopback_measure_together(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    words = f"measure all_reduce -g 2 --nnodes 2 --rdzv-endpoint 127.0.0.1:{port} --size 64K -n 3 -o"
    both = [start(tmp_path, f"{words} {name}.jsonl") for name in "ab"]
    addresses = set()
    while not all(len(descendants(process.pid)) == 3 for process in both):
        addresses |= {
            address for process in both for found in listening(process.pid).values() for address in found
        }
    ends = [finish(process) for process in both]
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert addresses == {"127.0.0.1"}
    files = [file for file in tmp_path.iterdir() if file.suffix == ".jsonl"]
    assert len(files) == 1, "only the node of rank 0 writes"
    (row,) = read_lines(files[0].read_text(), "")
    assert (row.num_nodes, row.ranks) == (2, 4)
    assert sum("rank 0 runs on another node" in out for _, out, _ in ends) == 1


@pytest.mark.slow
def test_two_that_measure_into_one_file_keep_all_records_of_both(tmp_path):
    both = [
        start(tmp_path, f"measure {kind} -g 1 -o out.jsonl -b 64 -e 16M -n 1 -w 0")
        for kind in ("all_reduce", "broadcast")
    ]
    ends = [finish(process) for process in both]
    assert [code for code, _, _ in ends] == [0, 0], ends
    sizes = [2**power for power in range(6, 25)]
    for kind in ("all_reduce", "broadcast"):
        assert [row.nbytes for row in records(tmp_path) if row.collective == kind] == sizes


@pytest.mark.parametrize(
    ("number", "words", "message"),
    slow_or_proof(
        [
            (signal.SIGKILL, "", r"ringside: .*rank 1 was killed by SIGKILL"),
            (signal.SIGSTOP, " --timeout 3", r"ringside: .*rank 0"),
        ]
    ),
)
def test_a_rank_that_dies_or_hangs_is_reported_and_nothing_is_left(tmp_path, number, words, message):
    process = start(tmp_path, LONG + words)
    ranks = wait_for_records(tmp_path, process, 2)
    os.kill(ranks[1], number)
    code, _, err = finish(process)
    assert code == 1
    assert re.search(message, err, re.DOTALL)
    assert number == signal.SIGSTOP or "Traceback" not in err.partition("wrote:")[0]
    assert records(tmp_path)
    assert gone(ranks)


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing(tmp_path):
    process = start(tmp_path, LONG)
    ranks = wait_for_records(tmp_path, process, 2)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130
    assert "interrupted; complete files: out.jsonl" in err
    assert len(records(tmp_path)) == sum(line.startswith(" ") for line in out.splitlines())
    assert gone(ranks)


@pytest.mark.slow
def test_even_kill_9_leaves_nothing(tmp_path):
    process = start(tmp_path, LONG)
    ranks = wait_for_records(tmp_path, process, 2)
    process.kill()
    process.communicate()
    assert records(tmp_path)
    assert gone(ranks)


@pytest.mark.slow
def test_a_rank_that_disagrees_is_reported(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "if os.environ.get('RANK') == '1':\n"
        "    import ringside.real.collective.programs\n"
        "    true = ringside.real.collective.programs.Buffers.reset\n"
        "    ringside.real.collective.programs.Buffers.reset = lambda self: (true(self), self.data.add_(1))\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    words = "measure all_reduce -g 2 -o out.jsonl -b 4K -e 8K -n 2"
    code, _, err = finish(start(tmp_path, words, PYTHONPATH=path))
    assert code == 1
    assert "elements differ from the exact all_reduce of 4096 B" in err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.slow
def test_forked_ranks_that_fail_are_reported_and_the_next_run_starts_anew(forks):
    never = Measurement(collective="all_reduce", world=WorldSpec(2), sizes=[4096], timeout_s=1e-6)
    with pytest.raises(MeasureError, match="the run failed: rank "):
        measure(never, print, forks)
    rows = []
    measure(replace(never, timeout_s=60.0), rows.append, forks)
    assert len(rows) == 1


def test_only_gloos_ranks_of_this_machine_are_forked(forks):
    what = Measurement(collective="all_reduce", world=WorldSpec(1, 2, "127.0.0.1:1"), sizes=[4096])
    with pytest.raises(ValueError, match="gloo on 2 nodes"):
        measure(what, print, forks)
