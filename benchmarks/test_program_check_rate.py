"""How long it takes to record and prove jobs of a thousand ranks, each of a thousand calls or nearly."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.benchmark

MOST_SECONDS = 5.0

MEASURED = """
import time
from ringside.sim.program.check import check
from ringside.sim.program.record.distributed import record

MIB = 1 << 20

def ring(dist):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for _ in range(200):
        dist.compute(1e-3)
        for work in [dist.isend(MIB, (rank + 1) % ranks), dist.irecv(MIB, (rank - 1) % ranks)]:
            work.wait()

def batched_ring(dist):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for _ in range(333):
        dist.compute(1e-3)
        there, here = (rank + 1) % ranks, (rank - 1) % ranks
        edges = [dist.P2POp(dist.isend, MIB, there), dist.P2POp(dist.irecv, MIB, here)]
        for work in dist.batch_isend_irecv(edges):
            work.wait()

def data_parallel(dist):
    own, _ = dist.new_subgroups(8)
    for _ in range(85):
        dist.compute(1e-3)
        works = [dist.all_reduce(MIB, async_op=True) for _ in range(4)]
        dist.all_reduce(MIB, group=own)
        for work in works:
            work.wait()

def all_reduces(dist):
    for _ in range(1000):
        dist.all_reduce(MIB)

begin = time.process_time()
verdict = check(record({job}, 1000, "{library}"))
print(time.process_time() - begin, verdict.operations, verdict.verdict)
"""


@pytest.mark.parametrize(
    ("job", "library"),
    [
        ("ring", "gloo"),
        ("batched_ring", "nccl"),
        ("data_parallel", "gloo"),
        ("data_parallel", "nccl"),
        ("all_reduces", "gloo"),
        ("all_reduces", "nccl"),
    ],
)
def test_a_thousand_ranks_are_checked_quickly(job: str, library: str) -> None:
    code = MEASURED.replace("{job}", job).replace("{library}", library)
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, operations, verdict = found.split()
    print(f"{job} on {library}: {int(operations):,} operations in {float(seconds):.1f} s")
    assert verdict == "proved"
    assert float(seconds) < MOST_SECONDS
