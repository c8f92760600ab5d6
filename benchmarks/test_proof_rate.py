"""How long the proof of a large ring takes, and how much memory."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.benchmark

MEASURED = """
import resource, time
from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.proof import prove

plan = schedule("ring", Collective("all_reduce", {ranks}, 1 << 30))
begin = time.process_time()
prove(plan)
print(time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.parametrize(("ranks", "most_seconds", "most_memory"), [(1024, 2, 100e6), (4096, 60, 1e9)])
def test_a_large_ring_is_proved_quickly(ranks: int, most_seconds: float, most_memory: float) -> None:
    command = [sys.executable, "-c", MEASURED.format(ranks=ranks)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, memory = map(float, found.split())
    print(f"ring of {ranks}: {seconds:.2f} s, peak memory {memory / 1e6:.0f} MB")
    assert seconds < most_seconds
    assert memory < most_memory
