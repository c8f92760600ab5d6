"""Scripts that end early, never end, start processes or ask for the network: nothing of them is left."""

import time

import psutil
import pytest

from ringside.real.questions.recording import ScriptRecording
from ringside.real.record.processes import RecordingError
from tests.tiers import slow_or_proof

BEGIN = """
import os, subprocess, sys, time, socket
import torch, torch.distributed as dist
dist.init_process_group("nccl")
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
"""

REFUSED = [
    ("step(); sys.exit(3)", "exited with 3 after 1 optimizer steps, recording needs 3"),
    ("step(); os._exit(4)", "rank 0 exited with code 4 before it had taken 3 optimizer steps"),
    ("while True: time.sleep(1)", "has not taken 3 optimizer steps in 15 s"),
    ("for _ in range(5): step()\nraise KeyError('x')", ""),
    ("model(torch.randn(2, 4, device='cuda')).unique()", "script.py:10: aten._unique2.default has a result"),
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


def processes_of(marker):
    return [one for one in psutil.process_iter(["cmdline"]) if marker in (one.info["cmdline"] or [])]


@pytest.mark.parametrize(("lines", "says"), slow_or_proof([one for one in REFUSED if one[1]]))
def test_what_cannot_be_recorded_is_said_in_a_line(lines, says, written):
    file = written(BEGIN + lines, "script.py")
    with pytest.raises(RecordingError) as error:
        ScriptRecording(command=[str(file)], ranks=1, timeout=15.0 if "15 s" in says else 200.0).ask()
    assert says in str(error.value).splitlines()[0]


@pytest.mark.slow
def test_nothing_is_left_of_a_script_that_starts_processes(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    marker = f"ringside-{time.time_ns()}"
    lines = f"""
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "{marker}"], start_new_session=True)
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except ConnectionRefusedError:
    pass
open("left.txt", "w").close()
for _ in range(5): step()
"""
    answer = ScriptRecording(command=[str(written(BEGIN + lines, "script.py"))], ranks=1, timeout=100.0).ask()
    assert "the script asks for the network, which recording denies it" in answer.notes
    assert "the script writes left.txt" in answer.notes
    assert not processes_of(marker)
