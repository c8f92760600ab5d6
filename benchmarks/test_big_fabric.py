"""24,576 GPUs on three tiers of rails, from the command line: built, routed and answered."""

import json
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.benchmark

MOST_SECONDS = 60.0
MOST_MEMORY = 4e9

ASKED = """
import resource, sys
from ringside.__main__ import main
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr)
"""


@pytest.mark.parametrize("times", ["tuner", "pipeline"])
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_nccl_on_3072_machines(algorithm: str, times: str) -> None:
    words = "simulate all_reduce --cluster dgx-h100:3072 --set fabric=rail_optimized --set tiers=3 --json"
    words += f" --size 1G --algorithm {algorithm} --protocol simple --times {times}"
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", ASKED, *words.split()], check=True, capture_output=True, text=True
    )
    took, memory = time.perf_counter() - begun, float(done.stderr.split()[-1])
    answer = json.loads(done.stdout)
    (row,) = answer["rows"]
    print(f"{algorithm}, {times}: {row['time_s'] * 1e3:.2f} ms, in {took:.1f} s and {memory / 1e6:.0f} MB")
    assert answer["inputs"]["ranks"] == 24_576
    assert (row["engine"], row["algorithm"]) == ("model", algorithm)
    assert "fabric: connections that share" in row["caveat"]
    closed = {"tuner": "by closed form", "pipeline": "the closed form's time"}
    assert closed[times] in f"{row['caveat']}; {answer['note']}"
    assert took < MOST_SECONDS
    assert memory < MOST_MEMORY
