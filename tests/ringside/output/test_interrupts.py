"""Control-C at any point: a message, exit code 130, no traceback."""

import os
import signal
import subprocess
import sys

import pytest

from tests.tiers import slow_or_proof

ENDLESS = "print('begun', file=sys.stderr, flush=True)\n    while True:\n        time.sleep(0.01)\n"

SCRIPT = f"import sys, time\ndef main(dist):\n    {ENDLESS}"
MODEL = f"import sys, time\ndef make():\n    {ENDLESS}"


@pytest.mark.parametrize(
    ("text", "words"),
    slow_or_proof(
        [
            (SCRIPT, "program job.py -g 2"),
            (SCRIPT, "program job.py -g 2 --real"),
            (SCRIPT, "program --job job.py:2 --job job.py:2 --cluster star:4"),
            ("import sys, time\nif True:\n    " + ENDLESS, "program job.py -g 2"),
            (MODEL, "train --model job.py:make --cluster star:2"),
        ]
    ),
)
def test_an_interrupt_of_a_users_code_is_said_in_words(tmp_path, text, words):
    (tmp_path / "job.py").write_text(text, encoding="utf-8")
    if "--model" in words:
        pytest.importorskip("torch")
    process = subprocess.Popen(
        [sys.executable, "-m", "ringside", *words.split()], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stderr
    assert process.stderr.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "ringside: interrupted; nothing was written\n")
