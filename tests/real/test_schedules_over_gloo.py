import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ringside.sim.algorithms import ALGORITHMS, algorithms_for
from tests.tiers import slow_or_proof

SCRIPT = Path(__file__).with_name("all_schedules.py")


@pytest.mark.gloo
@pytest.mark.parametrize("worlds", slow_or_proof([[3, 4], [2, 5]]), ids=str)
def test_every_schedule_gives_the_exact_result_on_every_rank(worlds):
    command = [sys.executable, SCRIPT, *map(str, worlds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=480, check=False)
    assert done.returncode == 0, done.stderr
    ways, uneven = sum(map(len, ALGORITHMS.values())), len(algorithms_for("all_to_all"))
    for ranks in worlds:
        assert done.stdout.count(f"right {ranks} ") == (ways * 6 + uneven) * 2
