"""Jobs on this machine: their ports are unreachable from others, and SIGTERM leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.processes import descendants, listening
from tests.tiers import slow_or_proof

pytest.importorskip("torch")

pytestmark = pytest.mark.gloo

JOB = "def main(dist):\n    for _ in range(300):\n        dist.all_reduce(16 * MiB)\n"


def wait_for_ranks(process):
    """Wait until the agent and both ranks listen; return their addresses."""
    end = time.monotonic() + 100
    while time.monotonic() < end and process.poll() is None:
        addresses = list(filter(None, listening(process.pid).values()))
        if len(addresses) == 3:
            return set().union(*addresses)
        time.sleep(0.02)
    raise AssertionError(process.communicate())


@pytest.mark.parametrize(
    "words",
    slow_or_proof(
        [
            "measure all_reduce -g 2 -o out -b 4K -e 64M -n 300",
            "measure ddp -g 2 -n 1000 -o out",
            "measure train -g 2 -n 1000 -o out",
            "measure elastic -g 2 --kills 0 --interval 100 -o out",
            "program job.py -g 2 --real -o out.jsonl",
        ]
    ),
)
def test_other_machines_reach_no_port_of_a_job_and_when_it_is_terminated_nothing_stays(tmp_path, words):
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "ringside", *words.split()], cwd=tmp_path, text=True,
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    addresses, started = wait_for_ranks(process), descendants(process.pid)
    for _ in range(2):  # as to a whole job, which a scheduler tells more than once
        process.send_signal(signal.SIGTERM)
        time.sleep(0.01)
    _, err = process.communicate(timeout=60)
    assert addresses == {"127.0.0.1"}
    assert (process.returncode, [one for one in started if one.is_running()]) == (143, []), err
    assert "ringside: terminated; " in err
    assert not list((tmp_path / "temporary").glob("ringside-*"))  # where torch keeps what it compiled too
