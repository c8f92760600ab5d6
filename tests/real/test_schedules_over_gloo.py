import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from sim.algorithms import ALGORITHMS, algorithms_for

SCRIPT = Path(__file__).with_name("all_schedules.py")


@pytest.mark.gloo
@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_every_schedule_gives_the_exact_result_on_every_rank(ranks):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run([*command, SCRIPT], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    ways, uneven = sum(map(len, ALGORITHMS.values())), len(algorithms_for("all_to_all"))
    assert done.stdout.count("right") == (ways * 6 + uneven) * 2
