"""Scripts that end early, never end, start processes or ask for the network: nothing of them is left."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from ringside.real.questions.recording import ScriptRecording
from ringside.real.record import processes
from ringside.real.record.processes import RecordingError, UnfinishedError
from tests.tiers import slow_or_proof

BEGIN = """
import os, signal, subprocess, sys, time, socket
import torch, torch.distributed as dist
dist.init_process_group("nccl")
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
"""

REFUSED = [
    ("step(); sys.exit(3)", "rank 0 exited with code 3 before it had taken 3 optimizer steps"),
    ("sys.exit('no data')", "rank 0 exited with code 1 before it had taken 3 optimizer steps"),
    ("step(); os._exit(4)", "rank 0 exited with code 4 before it had taken 3 optimizer steps"),
    ("os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)", "rank 0 exited with code 143 before"),
    ("raise KeyError('first\\nsecond')", "script.py:10: KeyError: 'first"),
    ("bytearray(2**60)", "script.py:10: MemoryError"),
    ("input()", "script.py:10: EOFError"),
    ("model(torch.randn(2, 4, device='cuda')).unique()", "script.py:10: aten._unique2.default has a result"),
    (
        "try: model(torch.randn(2, 4, device='cuda')).unique()\n"
        "except BaseException: pass\n"
        "for _ in range(5): step()",
        "script.py:10: aten._unique2.default has a result",
    ),
    (
        "import torch.multiprocessing as mp; mp.spawn(step, nprocs=3)",
        "starts 3 ranks of its own, 1 are recorded",
    ),
    ("torch.zeros(2, device='cuda')[3]", "script.py:10: IndexError"),
    (
        "model.cpu()\nfor _ in range(5): model(torch.randn(2, 4)).sum().backward(); optimizer.step()",
        "asks nothing of a GPU",
    ),
]
"""Lines of a script, and what is said of them."""

UNFINISHED = [
    ("while True: time.sleep(1)", "has not taken 3 optimizer steps in 15 s"),
    (
        "for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, signal.SIG_IGN)\n"
        "while True: sys.stdout.write('x' * 2**20)",
        "has not taken 3 optimizer steps in 15 s",
    ),
    ("os.kill(os.getpid(), signal.SIGKILL)", "rank 0 was killed by SIGKILL before"),
    (
        "keeper = open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()\n"
        "os.kill(int(keeper[1]), signal.SIGKILL)\n"
        "time.sleep(60)",
        "the process that starts ranks was killed by SIGKILL",
    ),
]

CHILDREN = """
sleep = [sys.executable, "-c", "import time; time.sleep(600)", "MARKER"]
subprocess.Popen(sleep)
subprocess.Popen(sleep, start_new_session=True, env={})
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        os.execve(sleep[0], sleep, {})
    sys.exit(3)
"""
"""Processes in other sessions, without the environment, and an orphan; a child that ends as scripts do."""

RECORDED = [
    CHILDREN,
    "os.fork()",
    "import threading; threading.Thread(target=time.sleep, args=(600,)).start()",
    "import atexit; atexit.register(time.sleep, 600)",
    "os.close(1); os.close(2)",
    "sys.stdout.close()",
    "inner = step\ndef step():\n    try: inner()\n    except BaseException: time.sleep(600)",
]
"""What a script may do beside its steps."""


@pytest.fixture
def marker(monkeypatch):
    """Mark processes by their environment or command line; none may be left."""
    marker = f"ringside-{time.time_ns()}"
    monkeypatch.setenv("MARKER", marker)
    yield marker
    assert not left(marker)


def left(marker):
    """Return the command lines of a test's processes, but for the test's own."""
    commands = []
    for one in psutil.process_iter():
        try:
            is_ours = marker in one.cmdline() or one.environ().get("MARKER") == marker
        except psutil.Error:
            continue
        if is_ours and one.pid != os.getpid():
            commands.append(one.cmdline())
    return commands


def ask(file, timeout=200.0):
    return ScriptRecording(command=[str(file)], ranks=1, timeout=timeout).ask()


@pytest.mark.slow
def test_a_script_that_gives_up_says_why(written):
    with pytest.raises(RecordingError, match=r"steps\n--- rank 0 wrote:\nreading\nno data$"):
        ask(written(BEGIN + "print('reading'); sys.exit('no data')", "script.py"))


@pytest.mark.parametrize(("lines", "says"), slow_or_proof(REFUSED))
def test_what_cannot_be_recorded_is_said_in_a_line(lines, says, written, marker):
    with pytest.raises(RecordingError) as error:
        ask(written(BEGIN + lines, "script.py"))
    assert says in str(error.value).splitlines()[0]


@pytest.mark.parametrize(("lines", "says"), slow_or_proof(UNFINISHED))
def test_what_does_not_end_is_ended(lines, says, written, marker):
    with pytest.raises(UnfinishedError) as error:
        ask(written(BEGIN + lines, "script.py"), timeout=15.0 if "15 s" in says else 200.0)
    assert says in str(error.value).splitlines()[0]
    wait_for_none(marker)


def test_ranks_that_cannot_start_are_said(written, monkeypatch):
    monkeypatch.setattr(processes, "FORKS", "ringside.nowhere")
    with pytest.raises(RecordingError, match=r"the process that starts ranks exited with code 1\n.*nowhere"):
        ask(written(BEGIN, "script.py"))


@pytest.mark.slow
def test_ranks_are_forked_from_one_thread():
    counted = f"import {processes.FORKS}, os; print(len(os.listdir('/proc/self/task')))"
    command = [sys.executable, "-c", counted]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run(command, capture_output=True, check=True, env=environment).stdout == b"1\n"


@pytest.mark.parametrize("lines", slow_or_proof(RECORDED))
def test_nothing_is_left_of_what_a_script_starts(lines, written, marker):
    lines = lines.replace("MARKER", marker)
    answer = ask(written(f"{BEGIN}{lines}\nfor _ in range(5): step()", "script.py"))
    assert answer.roles[0].operators == 9


@pytest.mark.slow
def test_files_and_the_network_are_noted(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = """
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except ConnectionRefusedError:
    pass
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 80))
except ConnectionRefusedError:
    open("left.txt", "w").close()
for _ in range(5): step()
"""
    answer = ask(written(BEGIN + lines, "script.py"))
    assert "the script asks for the network, which recording denies it" in answer.notes
    assert "the script writes files, which --with-source names" in answer.notes


@pytest.mark.slow
def test_a_ranks_output_is_kept_short(monkeypatch, written):
    monkeypatch.setattr(processes, "_LOG_BYTES", 2**12)
    sizes = []
    begun = processes.os.truncate
    monkeypatch.setattr(
        processes.os, "truncate", lambda *given: sizes.append(given[0].stat().st_size) or begun(*given)
    )
    lines = "for _ in range(40): print('x' * 2**10, flush=True); time.sleep(0.1)\nraise KeyError('end')"
    with pytest.raises(RecordingError, match="KeyError"):
        ask(written(BEGIN + lines, "script.py"))
    assert len(sizes) > 1
    assert max(sizes) < 2**14


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_leaves_no_process_and_no_file(number, written, marker, tmp_path):
    lines = CHILDREN.replace("MARKER", marker) + "open('begun', 'w').close()\nwhile True: time.sleep(1)"
    written(BEGIN + lines, "script.py")
    process = subprocess.Popen(
        [sys.executable, "-m", "ringside", "record", "-g", "1", "-o", "job.json", "script.py"], cwd=tmp_path,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.1)
    assert left(marker)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    words = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
    if number in words:
        expected = (128 + number, "", f"ringside: {words[number]}; nothing was written\n")
        assert (process.returncode, out, err) == expected
    else:
        wait_for_none(marker)
    assert {one.name for one in tmp_path.iterdir()} == {"script.py", "begun"}


def wait_for_none(marker, seconds=20.0):
    """Wait until a test's processes have ended."""
    end = time.monotonic() + seconds
    while left(marker) and time.monotonic() < end:
        time.sleep(0.1)
