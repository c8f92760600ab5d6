"""What rules for NCCL's tuner plugin cost a job that follows them, and how long picking takes."""

import csv
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringside.sim.libraries.nccl import SYSTEMS, communicator, cost_table
from ringside.sim.libraries.nccl.names import ALGORITHMS, PROTOCOLS

pytestmark = pytest.mark.benchmark

NODES = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512)
SIZES = 2000
MOST_SLOWER = 0.005
MOST_SECONDS = 5.0
MACHINES = ("dgx1-v100", "dgx-a100", "dgx-h100", "dgx-b200", "a100-pcie4", "polaris-a100", "aws-p4d")


def picked(machine: str, out: Path) -> float:
    """Write rules for a machine on all node counts; return the seconds of processor time that it took."""
    words = ["pick", "all_reduce", "--cluster", machine, "--nodes", ",".join(map(str, NODES))]
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "ringside", *words, "--tuner-csv", str(out)], check=True, capture_output=True
    )
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@pytest.mark.parametrize("machine", MACHINES)
def test_following_the_rules_is_never_slower_than_nccls_default(machine: str, tmp_path: Path) -> None:
    out = tmp_path / "rules.csv"
    picked(machine, out)
    rules = [row for row in csv.reader(out.read_text().splitlines()) if row and not row[0].startswith("#")]
    worst = 0.0
    for nodes in NODES:
        chance, comm = random.Random(nodes), communicator(machine, nodes)
        table = cost_table(comm, "all_reduce")
        mine = [row for row in rules if (int(row[6]), int(row[7])) == (nodes, comm.ranks)]
        for nbytes in (int(2 ** chance.uniform(0, 34)) for _ in range(SIZES)):
            rule = next(row for row in mine if int(row[1]) <= nbytes <= int(row[2]))
            place = list(ALGORITHMS).index(rule[3]), list(PROTOCOLS).index(rule[4])
            taken = table.times_us(nbytes)[place]
            worst = max(worst, taken / table.choose(nbytes).time_us - 1)
    print(f"{machine}: {SIZES} sizes x {len(NODES)} counts, at worst {worst:.2%} slower")
    assert worst <= MOST_SLOWER


@pytest.mark.parametrize("machine", sorted(set(SYSTEMS) - {"gb200-nvl72"}))
def test_picking_takes_less_than_five_seconds(machine: str, tmp_path: Path) -> None:
    if SYSTEMS[machine].gpus == 1:
        pytest.skip("one GPU alone has nothing to choose")
    begun = time.perf_counter()
    seconds = picked(machine, tmp_path / "rules.csv")
    print(f"{machine}: {seconds:.1f} s of processor time, {time.perf_counter() - begun:.1f} s on the clock")
    assert seconds < MOST_SECONDS
