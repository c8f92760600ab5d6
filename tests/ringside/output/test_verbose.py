"""`-v`: decisions and their reasons on stderr; and the message of an interrupt."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

ASKED = ("simulate", "all_reduce", "--cluster", "star:4", "--size", "1K", "--json")


def test_decisions_are_told_on_stderr_alone(ringside):
    _, plain, silent = ringside(*ASKED)
    code, out, err = ringside(*ASKED, "-v")
    assert (code, out, silent) == (0, plain, "")
    assert "ringside: library ideal: no machines that NCCL's model knows" in err
    assert "ringside: engine simpy for ring all_reduce of 1 KiB" in err
    assert ringside(*ASKED)[2] == ""  # one run's word holds for no other


def test_twice_names_the_modules_too(ringside):
    assert "ringside: ringside.sim.libraries.find: library ideal" in ringside(*ASKED, "-vv")[2]


def test_it_may_stand_before_the_command(ringside):
    assert "ringside: library ideal" in ringside("-v", *ASKED)[2]


def test_the_calibration_is_named_with_its_file(ringside):
    _, out, err = ringside(
        "simulate", "all_reduce", "--cluster", "dgx-h100:2", "--size", "1M", "--json", "-v"
    )
    assert json.loads(out)["inputs"]["library"] == "nccl"
    assert "library nccl: machines with GPUs of NVIDIA's" in err
    assert "calibration: dgx-h100: " in err


@pytest.mark.parametrize(
    ("words", "number", "says"),
    [
        ("--engine simpy", signal.SIGINT, "interrupted"),
        ("--engine simpy --trace out.json", signal.SIGINT, "interrupted"),
        ("--engine simpy --trace out.json", signal.SIGTERM, "terminated"),
    ],
)
def test_an_interrupt_says_that_nothing_was_written_where_nothing_was(tmp_path, words, number, says):
    line = f"simulate all_reduce --cluster star:512 --algorithm ring --size 64M {words}"
    process = subprocess.Popen(
        [sys.executable, "-m", "ringside", *line.split()], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stderr
    process.stderr.readline()  # the announcement of a simulation that takes long
    time.sleep(0.2)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, "")
    assert f"ringside: {says}; nothing was written" in err
    assert not list(tmp_path.iterdir())
