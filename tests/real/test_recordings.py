"""Recordings against real runs: every call of every rank, by kind, bytes, group, peer and waiting."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ringside.real.record.job import ScriptJob
from ringside.real.record.processes import RankProcesses
from tests.tiers import slow_or_proof

HERE = Path(__file__).parent

CASES = [
    ("ddp.py", 2),
    ("ddp.py find_unused_parameters", 2),
    ("ddp.py static_graph", 3),
    ("accumulation.py", 2),
    ("fsdp2.py", 4),
    ("fsdp2.py 2", 4),
    ("fsdp1.py", 2),
    ("tensor.py plain", 2),
    ("tensor.py sequence", 2),
    ("tensor.py sharded", 4),
    ("tensor.py sharded 5", 4),
    ("pipeline.py", 3),
    ("ring.py", 3),
    ("experts.py", 4),
    ("zero.py", 2),
]


def recorded_calls(part):
    """Return the calls of a recorded step, as `gloo_rank` writes them."""
    groups = {one.name: one for one in part.groups}
    for entry in part.recorded.entries:
        action = part.recorded.actions[entry.action]
        if action.kind == "call":
            ranks = list(groups[action.group].of(part.rank))
            yield [action.collective, action.nbytes, ranks, action.root, action.waits]
        elif action.kind == "message":
            ranks = list(groups[action.group].of(part.rank))
            yield ["send" if action.is_send else "recv", action.nbytes, ranks, action.peer, False]


def record(script, arguments, ranks, folder):
    """Record every rank of a script."""
    job = ScriptJob(
        script=str(HERE / "scripts" / script), is_module=False, arguments=tuple(arguments), ranks=ranks,
        per_node=ranks, steps=4, timeout_s=200, with_source=False,
    )  # fmt: skip
    (folder / "mail").mkdir()
    with RankProcesses(lambda rank: job.order(folder, rank), folder, 400, lambda _: None) as processes:
        processes.record(range(ranks))
        return processes.parts


def run(script, arguments, ranks, folder, by="tests.real.gloo_rank"):
    """Run the script for real; return what the module ``by`` writes of each rank."""
    command = [
        *(sys.executable, "-m", "ringside.real.launch.loopback", "--rdzv-backend", "loopback"),
        *("--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", "truth", "--local-addr", "127.0.0.1"),
        *("--nproc-per-node", str(ranks), "-m", by, str(folder)),
        *(str(HERE / "scripts" / script), *arguments),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=500, cwd=HERE.parents[1],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.gloo
@pytest.mark.parametrize(("case", "ranks"), slow_or_proof(CASES))
def test_every_call_of_every_rank_is_that_of_a_real_run(case, ranks, tmp_path):
    script, *arguments = case.split()
    parts = record(script, arguments, ranks, tmp_path)
    real = run(script, arguments, ranks, tmp_path)
    for rank in range(ranks):
        assert parts[rank].recorded.unsteady == ""
        steady = list(recorded_calls(parts[rank]))
        assert steady
        steps = real[rank][parts[rank].steps - 2 : -1]  # from the first that the recording found steady
        assert len(steps) > 1
        assert all(step == steady for step in steps)


@pytest.mark.slow
def test_optimizers_go_through_lists_as_on_cuda(tmp_path):
    (part,) = record("ddp.py", [], 1, tmp_path).values()
    names = {action.name for action in part.recorded.actions if action.kind == "operator"}
    assert "aten._foreach_addcdiv_" in names
    assert "aten.addcdiv_" not in names
