import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ringside.sim.record import write
from ringside.validation.readers import read

TOP = Path(__file__).parents[2]
PUBLISHED = TOP / "validation" / "published"
RUN = PUBLISHED / "abci2_a100_all_reduce_n4_r32.json"
LOG = TOP / "tests" / "validation" / "data" / "v2.19_nccl_debug.log"


@pytest.fixture
def slow(tmp_path):
    """Write a run whose large sizes take twice as long."""
    rows = read(PUBLISHED / "azure_h100_n1_r8_all_reduce.json").records
    slowed = [replace(row, time_s=row.time_s * (2 if row.nbytes >= 2**24 else 1)) for row in rows]
    write(slowed, tmp_path / "slow.jsonl")
    return "slow.jsonl"


def test_floors_lie_below_what_is_expected(json_of):
    content = json_of("expect all_reduce --cluster dgx-h100 --nodes 1,4 -b 16M -e 1G")
    assert content["schema"] == "ringside.expect/1"
    assert [row["num_nodes"] for row in content["rows"]] == [1] * 7 + [4] * 7
    assert all(0 < row["floor_busbw"] < row["expected_busbw"] for row in content["rows"])
    expected = json_of("simulate all_reduce --cluster dgx-h100 --nodes 1,4 -b 16M -e 1G")["rows"]
    for row, of in zip(content["rows"], expected, strict=True):
        assert row["expected_busbw"] == pytest.approx(of["busbw_GBps"] * 1e9)


def test_fewer_false_alarms_are_lower_floors(json_of):
    few, many = (
        json_of(f"expect all_gather --cluster dgx-h100:2 --size 1G --false-alarms {share}")["rows"][0]
        for share in ("0.1%", "10%")
    )
    assert few["floor_busbw"] < many["floor_busbw"] < many["expected_busbw"]


def test_the_first_line_is_the_answer(printed):
    first = printed("expect all_reduce --cluster dgx-h100:2").splitlines()[0]
    assert re.fullmatch(
        r"# a healthy dgx-h100:2 reaches [\d.]+ GB/s of bus bandwidth in all_reduce of 8 GiB; floor [\d.]+ "
        r"GB/s, below which 2.0% of healthy runs lie",
        first,
    )


def test_a_healthy_log_passes_the_gate(printed):
    assert printed("expect", "--gate", RUN).startswith("# healthy: every run reaches its floors")


def test_a_slow_log_fails_the_gate_with_its_likely_causes(ringside, slow):
    code, out, err = ringside("expect", "--gate", slow)
    assert (code, err) == (1, "")
    first, *_ = out.splitlines()
    assert re.match(r"# below the floor: all_reduce on 8 ranks takes [\d.]+x as long as expected in", first)
    assert "a GPU's links in the node carry 0." in first


def test_json_says_the_same(ringside, slow):
    code, out, _ = ringside("expect", "--gate", slow, "--json")
    content = json.loads(out)
    assert (code, content["schema"], content["healthy"]) == (1, "ringside.expect-gate/1", False)
    assert content["causes"][0]["cause"] == "inside_rate"
    assert content["runs"][0]["below"] >= 1
    assert all(row["below"] for row in content["rows"] if row["size_bytes"] >= 2**28)


def test_a_healthy_log_of_the_site_sharpens_the_gate(ringside, tmp_path):
    healthy = PUBLISHED / "aws_p5_h100_all_reduce_n2_r16_v2223.json"
    rows = read(healthy).records
    write([replace(row, time_s=row.time_s * 1.25) for row in rows], tmp_path / "late.jsonl")
    assert ringside("expect", "--gate", "late.jsonl", "--anchor", healthy)[0] == 1
    assert ringside("expect", "--gate", healthy, "--anchor", healthy)[0] == 0


def test_what_cannot_be_judged_is_refused(refused, tmp_path):
    rows = [row for row in read(RUN).records if 2**17 <= row.nbytes <= 2**23]
    write(rows, tmp_path / "between.jsonl")
    for words, message in {
        (): "--gate LOG",
        ("all_reduce",): "--cluster",
        ("all_reduce", "--cluster", "dgx-h100", "--gate", RUN): "--collective",
        ("all_reduce", "--cluster", "dgx-h100", "--false-alarms", "60%"): "--false-alarms",
        ("all_reduce", "--cluster", "dgx-h100", "--false-alarms", "2"): "for example 10%",
        ("all_reduce", "--cluster", "star:4"): "--calibration",
        ("--gate", "nowhere.log"): "no such file",
        ("--gate", "between.jsonl"): "measure such sizes",
        ("--gate", RUN, "--calibration", "none"): "--calibration",
        ("--gate", RUN, "--nodes", "4"): "--nodes",
    }.items():
        assert message in refused("expect", *words), words


SRUN = """#!/bin/sh
nodes=$(echo "$*" | sed -n 's/.*--nodelist=\\([^ ]*\\).*/\\1/p')
if [ -z "$nodes" ]; then cat job.log; else sed "s/FIRST/${nodes%,*}/; s/SECOND/${nodes#*,}/" pair.log; fi
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_slow", [False, True])
def test_the_job_script_measures_gates_and_calibrates(tmp_path, is_slow):
    """Run the script of the page, with a srun that prints a log."""
    (tmp_path / "job.log").write_text(nccl_tests(["node-01"] * 8, slower=2.0 if is_slow else 1.0))
    (tmp_path / "pair.log").write_text(nccl_tests(["FIRST", "SECOND"]))
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, body in {
        "srun": SRUN,
        "scontrol": "#!/bin/sh\nprintf 'node-01\\nnode-02\\nnode-03\\n'\n",
        "ringside": f'#!/bin/sh\nexec {sys.executable} -m ringside "$@"\n',
    }.items():
        (binaries / name).write_text(body)
        (binaries / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "NCCL_TESTS": "/opt/nccl-tests/build",
        "CLUSTER": "dgx-h100",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node-[01-03]",
    }
    script = TOP / "examples" / "health.sbatch"
    ran = subprocess.run(
        ["bash", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == is_slow, ran.stdout + ran.stderr
    written = {path.name for path in (tmp_path / "health-7").iterdir()}
    assert ("calibration.yaml" in written) == (not is_slow)
    assert ("pairs" in written) == is_slow


def nccl_tests(hosts: list[str], slower: float = 1.0) -> str:
    """Return nccl-tests' table of a GPU on each host, with the times of eight H100 in a node."""
    rows = read(PUBLISHED / "azure_h100_n1_r8_all_reduce.json").records
    gpus = 8 if len(set(hosts)) == 1 else 1
    lines = [f"# nThread 1 nGpus {gpus} minBytes 8 maxBytes 8589934592 step: 2(factor)", "# Using devices"]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid  9 on    {host} device  {rank} [0x1b] NVIDIA H100 80GB HBM3"
        for rank, host in enumerate(hosts)
    ]
    times = "time   algbw   busbw #wrong"
    lines += [f"#  size  count  type  redop  root  {times}  {times}"]
    lines += ["#  (B)  (elements)  (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)"]
    for row in rows:
        time_us = row.time_s * 1e6 * (slower if row.nbytes >= 2**24 else 1)
        algbw = row.nbytes / time_us / 1e3
        times = f"{time_us:.2f} {algbw:.2f} {algbw * 1.75:.2f} 0"
        lines.append(f"{row.nbytes:12} {row.nbytes // 4:12} float sum -1 {times} {times}")
    return "\n".join(lines) + "\n"
