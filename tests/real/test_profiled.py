"""The traces of a real job under PyTorch's profiler, on two ranks over Gloo."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")
from ringside.validation.readers.kineto import read_traces
from ringside.validation.traces.analysis import analyse
from ringside.validation.traces.program import program_of
from ringside.validation.traces.replay import as_recorded

pytestmark = pytest.mark.gloo

SCRIPT = """
import os
import sys
import time
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
    record_shapes=True,
    on_trace_ready=lambda found: found.export_chrome_trace(f"rank{rank}.json"),
) as profiler:
    for _ in range(3):
        time.sleep(0.05 * rank)
        dist.all_reduce(torch.ones(300_000))
        dist.broadcast(torch.ones(1000, dtype=torch.int64), 0)
        dist.all_to_all_single(torch.empty(64), torch.ones(64))
        profiler.step()
dist.destroy_process_group()
os._exit(0)  # the profiler's own thread sometimes aborts an interpreter that ends in the usual way
"""


@pytest.mark.slow
def test_a_job_under_gloo_is_read(tmp_path):
    (tmp_path / "job.py").write_text(SCRIPT)
    ranks = [
        subprocess.Popen(
            [sys.executable, "job.py", str(rank)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    for rank in ranks:
        _, err = rank.communicate(timeout=120)
        assert rank.returncode == 0, err
    traces = read_traces([tmp_path / "rank0.json", tmp_path / "rank1.json"])
    for trace in traces:
        kinds = [(one.kind, one.in_bytes) for one in trace.collectives]
        assert kinds == [("all_reduce", 1_200_000), ("broadcast", 8000), ("all_to_all", 256)] * 2
    found = analyse(traces)
    assert not found.matched.mismatches
    reduces = [one for one in found.meetings if one.match.kind == "all_reduce"]
    assert len(reduces) == 2
    for meeting in reduces:  # rank 1 slept
        assert meeting.last == 1
        assert 0.03 < meeting.skew_s < 0.5
        assert meeting.transfer_s < meeting.skew_s
    traced = program_of(found)
    assert as_recorded(traced).makespan_s == pytest.approx(traced.recorded_s, rel=0.05)
