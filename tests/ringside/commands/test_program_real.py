"""``ringside program --real`` on the command line."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
from ringside.real.emulate import available

TOP = Path(__file__).resolve().parents[3]
PROGRAMS = TOP / "examples/programs"

EVERYTHING = """
def main(dist):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = dist.new_group([0, 1])
    mesh = dist.init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))
    dist.compute(0.02)
    works = dist.irecv(4 * KiB, 1 - rank), dist.isend(4 * KiB, 1 - rank)
    for work in works:
        work.wait()
    dist.all_reduce(4 * KiB, async_op=True)
    dist.all_reduce(1 * MiB, group=own)
    dist.all_gather(4 * KiB, group=mesh.get_group("dp"))
    dist.all_to_all_single(8 * KiB)
    dist.barrier()
"""


@pytest.mark.gloo
def test_a_program_is_really_run_and_written_down(silently, tmp_path):
    (tmp_path / "job.py").write_text(EVERYTHING, encoding="utf-8")
    words = "program job.py -g 2 --real -n 2 -o runs.jsonl --trace trace.json --json"
    answer = json.loads(silently(words))
    measured = answer["measured"]
    assert answer["verdict"] == "proved"
    assert measured["iterations"] == 2
    assert len(measured["ends_s"]) == 2
    assert 0.02 <= measured["min_s"] <= measured["makespan_s"] <= measured["max_s"] < 10
    lines = [json.loads(line) for line in Path("runs.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [0, 1]
    assert sorted(line["makespan_s"] for line in lines) == [measured["min_s"], measured["max_s"]]
    for operations in lines[0]["operations"]:
        begin, end, category, name = operations[0]
        assert (category, name) == ("compute", "compute")
        assert end - begin >= 0.02
        names = [name for *_, name in operations]
        assert names == ["compute", "irecv", "isend", "wait for irecv", "wait for isend", "all_reduce",
                         "all_reduce", "all_gather", "all_to_all_single", "barrier",
                         "wait for all_reduce"]  # fmt: skip
        assert all(begin <= end for begin, end, *_ in operations)
    trace = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in trace} == {0, 1}
    assert sum(event["ph"] == "X" for event in trace) == 22


@pytest.mark.slow
@pytest.mark.gloo
def test_what_is_not_proved_is_run_with_a_time_limit_only(ringside, tmp_path):
    words = ["program", TOP / "examples/both_send_first.py", "-g", "2", "--real", "-o", "runs.jsonl"]
    code, out, err = ringside(*words)
    assert (code, ": hangs, " in out) == (1, True)
    assert err == "ringside: not run, because it is not proved; to run it anyway add --timeout SECONDS\n"
    code, out, err = ringside(*words, "--timeout", "2")
    assert code == 1
    assert "Timed out waiting 2000ms" in err
    assert not Path("runs.jsonl").exists()


@pytest.mark.slow
@pytest.mark.gloo
def test_what_a_script_drops_is_dropped(ringside, tmp_path):
    """Gloo then forgets the message, as under plain torch, unless the receive was there before."""
    script = "def main(dist):\n    if not dist.get_rank():\n        return dist.isend(4 * MiB, 1) and None\n"
    script += "    dist.compute(0.5)\n    dist.recv(4 * MiB, 0)\n"
    (tmp_path / "job.py").write_text(script, encoding="utf-8")
    code, out, err = ringside(*"program job.py -g 2 --real -w 0 -n 1 --timeout 5".split())
    assert (code, ": unsafe, " in out) == (1, True)
    assert "rank 0 does not wait for its isend (job.py:3); Gloo forgets" in out
    assert "Timed out waiting 5000ms" in err or "Connection closed by peer" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--real --check", "remove one of them"),
        ("--real --cluster star:2", "--cluster: --real does not simulate; remove one of them"),
        ("--emulate star:2", "--emulate: add --real, or remove it"),
        ("-o runs.jsonl", "-o: add --real, or remove it"),
        ("--real --set bandwidth=1Gb/s", "add --emulate"),
        ("--real --emulate star:2 --library nccl", "write gloo"),
        ("--real --library mpi", "write gloo or nccl"),
        ("--real --library ideal", "write gloo or nccl"),
        ("--real --compute dream", "write sleep or matmul"),
        ("--real -n 0", "at least 1"),
        ("--real --timeout 0", "write for example 60"),
        ("--real -o missing/runs.jsonl", "is not a writable folder"),
        ("--real -o same --trace same", "another output has this path"),
        ("--real --emulate star:2 -g 4", "star"),
        ("--real -g 1000", "or --force"),
    ],
)
def test_what_cannot_be_run_is_refused(ringside, words, told):
    code, _, err = ringside("program", TOP / "examples/halo_exchange.py", "-g", "2", *words.split())
    assert (code, told in err) == (2, True), err


@pytest.mark.slow
@pytest.mark.netadmin
@pytest.mark.skipif(available() is not None, reason=f"no emulated network: {available()}")
def test_on_an_emulated_network_prediction_and_measurement_stand_side_by_side(ringside):
    words = "-g 4 --real --emulate star:4 --set bandwidth=100Mb/s -n 3 --json"
    code, out, _ = ringside("program", PROGRAMS / "ring_shift.py", *words.split())
    answer = json.loads(out)
    assert code == 0
    assert answer["makespan_s"] == pytest.approx(answer["measured"]["makespan_s"], rel=0.08)
    assert answer["ends_s"] == pytest.approx(answer["measured"]["ends_s"], rel=0.08)
