"""``ringside program`` on the command line."""

import json
import re
import time
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]


def test_a_program_that_ends_is_proved(silently):
    out = silently("program", TOP / "examples/halo_exchange.py", "-g", "8")
    assert re.fullmatch(r".*halo_exchange\.py on 8 ranks of gloo: proved, 648 operations\n", out)


@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_one_that_does_not_is_told_of_and_exits_1(ringside, library):
    code, out, _ = ringside("program", TOP / "examples/both_send_first.py", "-g", "2", "--library", library)
    assert code == 1
    assert "they wait for one another: rank 0 for rank 1 for rank 0" in out


def test_json_has_the_verdict_and_its_story(ringside):
    code, out, _ = ringside("program", TOP / "examples/both_send_first.py", "-g", "2", "--json")
    content = json.loads(out)
    assert code == 1
    assert (content["schema"], content["verdict"]) == ("ringside.program/1", "hangs")
    assert len(content["story"]) == 4


LINES = {
    "dist.all_reduce('x')": "script.py:2: a size of 'x'; write bytes",
    "dist.all_reduce([4])": "script.py:2: a size of [4]; write bytes",
    "dist.send([4], 1 - dist.get_rank())": "script.py:2: a size of [4]; write bytes",
    "dist.all_reduce(4, group=[0])": "script.py:2: [0] is not a group",
    "dist.all_to_all_single(8, [4, 4])": "script.py:2: parts of one side only",
    "dist.all_to_all_single(8, [8], [8])": "fails at script.py:2: parts for 1 and 1 ranks",
    "dist.all_to_all_single(9, [4, 4], [4, 4])": "fails at script.py:2: parts of 8 bytes",
    "dist.foo(1)": "script.py:2: AttributeError",
    "1 / 0": "script.py:2: ZeroDivisionError",
    "dist.compute(-1)": "script.py:2: compute(-1); write seconds",
    "dist.all_reduce(4, op='xor')": "script.py:2: ValueError: unknown reduction 'xor'",
    "dist.all_reduce(4, group=7)": "script.py:2: 7 is not a group",
    "dist.new_subgroups(3)": "fails at script.py:2: new_subgroups of 3 of 2 ranks",
    "while True: dist.compute(0)": "script.py:2: more than 2,000,000 operations",
}
"""Of a script's main, each with what is told of it."""


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("def main(dist", "script.py:1: SyntaxError: '(' was never closed"),
        ("x = 1", "script.py has no function main; write def main(dist): ..."),
        ("def main():\n    pass", "TypeError"),
        ("raise SystemExit(3)", "script.py:1: SystemExit: 3"),
        *((f"def main(dist):\n    {line}", told) for line, told in LINES.items()),
    ],
)
def test_a_script_that_cannot_be_run_is_refused_with_its_line(ringside, tmp_path, script, told):
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    code, out, err = ringside("program", "script.py", "-g", "2")
    assert told in out + err
    assert code == (1 if "fails" in told else 2)


def test_what_is_no_script_is_refused(refused, tmp_path):
    message = "ringside: none.py: no such file; write the name of one with def main(dist): ...\n"
    assert refused("program none.py -g 2") == message
    refused("program", tmp_path, "-g", "2")
    assert "write gloo or nccl" in refused(
        "program", TOP / "examples/both_send_first.py", "-g", "2", "--library", "mpi"
    )


@pytest.mark.parametrize(
    "script",
    [
        "seen = []\ndef main(dist):\n    seen.append(1)\n    dist.all_reduce(4 * len(seen))",
        "from beside import seen\ndef main(dist):\n    seen.append(1)\n    dist.all_reduce(4 * len(seen))",
        "import sys\ndef main(dist):\n    dist.all_reduce(int(sys.argv[1]) if sys.argv[1:] else 4)",
    ],
)
def test_a_script_is_run_for_each_rank_as_in_a_process_of_its_own(silently, tmp_path, script):
    (tmp_path / "job").mkdir()
    (tmp_path / "job/beside.py").write_text("seen = []", encoding="utf-8")
    (tmp_path / "job/script.py").write_text(script, encoding="utf-8")
    assert ": proved, " in silently("program", "job/script.py", "-g", "3")


def test_a_rank_is_recorded_once_however_often_it_is_played(ringside, tmp_path):
    """What a script draws at random is not drawn anew for the second play."""
    script = (
        "def main(dist):\n    print('recorded')\n"
        "    dist.recv(4) if not dist.get_rank() else dist.send(4, 0)\n"
        "    dist.recv(4) if not dist.get_rank() else None"
    )
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    code, _, err = ringside("program", "script.py", "-g", "3")
    assert (code, err) == (0, "recorded\n" * 3)


def test_what_a_script_prints_stays_out_of_the_answer(ringside, tmp_path):
    (tmp_path / "script.py").write_text("print('one')\ndef main(dist):\n    print('two')", encoding="utf-8")
    code, out, err = ringside("program", "script.py", "-g", "1", "--json")
    assert (code, err, json.loads(out)["verdict"]) == (0, "one\ntwo\n", "proved")


def test_a_setting_of_the_other_library_is_refused(refused):
    assert "eager is NCCL's" in refused("program", TOP / "examples/both_send_first.py", "-g", "2", "--eager")


PAGE = (TOP / "docs/programs.md").read_text(encoding="utf-8")
HALO = TOP / "examples/halo_exchange.py"


def test_the_python_of_the_page_runs(capsys):
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1]
    exec(code, {})
    makespan, exposed = map(float, capsys.readouterr().out.split())
    assert 3e-3 < makespan == pytest.approx(3e-3 + exposed)


def test_a_cluster_makes_it_a_simulation(json_of, tmp_path):
    trace = tmp_path / "trace.json"
    content = json_of("program", HALO, "-g", "4", "--cluster", "star:4", "--trace", trace)
    assert (content["schema"], content["verdict"]) == ("ringside.program/1", "proved")
    assert content["makespan_s"] == max(rank["end_s"] for rank in content["ranks"]) > 0
    assert [rank["host"] for rank in content["ranks"]] == [0, 1, 2, 3]
    assert {"compute_s", "communication_s", "exposed_s", "waiting_s"} < set(content["ranks"][0])
    assert [group["name"] for group in content["groups"]] == ["world"]
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2, 3}
    assert max(e["ts"] + e["dur"] for e in events if e["ph"] == "X") == pytest.approx(
        content["makespan_s"] * 1e6
    )


def test_a_picture_has_a_row_for_each_rank(silently, tmp_path):
    picture = tmp_path / "halo.svg"
    silently("program", HALO, "-g", "4", "--cluster", "star:4", "--plot", str(picture))
    assert all(f"rank {rank}" in picture.read_text() for rank in range(4))


def test_check_alone_simulates_nothing(ringside):
    asked = ("program", HALO, "-g", "4")
    assert ringside(*asked, "--cluster", "star:4", "--check") == ringside(*asked)


def test_what_is_not_proved_is_not_simulated(ringside):
    code, out, _ = ringside("program", TOP / "examples/both_send_first.py", "-g", "2", "--cluster", "star:2")
    assert code == 1
    assert "they wait for one another" in out


def test_jobs_tell_their_slowdown(json_of):
    job = ("--job", f"{HALO}:2")
    uplink = ("--set", "hosts_per_leaf=2", "--set", "oversubscription=2", "--set", "bandwidth=1Gb/s")
    where = ("--cluster", "leaf-spine:2", *uplink)
    slowdowns = {}
    for name, placement in {"apart": ("0-1", "2-3"), "across": ("0,2", "1,3")}.items():
        words = [word for one in placement for word in ("--placement", one)]
        jobs = json_of("program", *job, *job, *where, *words)["jobs"]
        slowdowns[name] = [one["slowdown"] for one in jobs]
    assert slowdowns["apart"] == [1, 1]
    assert min(slowdowns["across"]) > 1.05


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([HALO, "-g", "4", "--cluster", "star:2"], "4 ranks, but star has 2"),
        ([HALO, "-g", "2", "--cluster", "star:2", "--placement", "0"], "a job of 2 ranks placed on 1"),
        ([HALO, "-g", "2", "--cluster", "star:2", "--library", "mpi"], "'mpi' runs no programs"),
        ([HALO, "-g", "2", "--cluster", "star:2", "--library", "nccl"], "NCCL's choices on star depend"),
        ([HALO, "-g", "2", "--cluster", "star:2", "--network", "fare"], "unknown network 'fare'"),
        ([HALO, "-g", "2", "--cluster", "nowhere"], "unknown cluster 'nowhere'"),
    ],
)
def test_bad_questions_are_told_what_to_write(refused, words, message):
    assert message in refused("program", *words)


def test_a_group_that_nccls_model_does_not_know_is_refused(refused, tmp_path):
    script = tmp_path / "uneven.py"
    script.write_text("def main(dist):\n    dist.all_reduce(4, group=dist.new_group([0, 1, 8]))\n")
    words = ("--cluster", "dgx-h100:2", "--library", "nccl")
    assert "write groups with equal numbers of ranks per machine" in refused(
        "program", script, "-g", "16", *words
    )


def test_more_ranks_than_can_be_written_down_are_refused_soon(ringside, monkeypatch):
    """What a rank costs tells what all cost, so nobody waits for minutes to learn that it takes hours."""
    begin = time.monotonic()
    code, _, err = ringside("program", HALO, "-g", 1_000_000)
    assert (code, time.monotonic() - begin < 30) == (2, True)
    assert "1,000,000 ranks of up to" in err
    assert "write fewer ranks, or --force" in err
    monkeypatch.setattr("ringside.sim.effort.MAX_TRANSFERS", 10)
    monkeypatch.setattr("ringside.sim.effort.LONG_S", 0.0)
    for where in ((), ("--cluster", "star:2")):
        assert "to record, about" in ringside("program", HALO, "-g", 2, *where)[2]
    code, out, err = ringside("program", HALO, "-g", 2, "--force")
    assert (code, "proved" in out, "2 ranks of up to" in err) == (0, True, True)


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "verdict"), [((), "proved"), (("skip", "1"), "hangs")])
def test_an_unmodified_training_script_is_recorded_and_proved(ringside, arguments, verdict):
    script = TOP / "tests/real/scripts/hangs.py"
    code, out, err = ringside("program", script, "-g", "3", "--", *arguments)
    assert code == (verdict == "hangs"), err
    assert f"hangs.py on 3 ranks of nccl: {verdict}," in out
    assert verdict == "proved" or "scripts/hangs.py:21), where rank" in out
