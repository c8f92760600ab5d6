"""Tables, JSON and files of the commands that need no real run."""

import json

import pytest

from ringside.sim.record import to_line
from tests.made_up import record

STAR = "simulate all_reduce --cluster star:64 --set bandwidth=25GB/s --set latency=5us --library ideal"


@pytest.fixture
def rows(json_of):
    return lambda words: json_of(words)["rows"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "low_us", "high_us"),
    [
        ("--algorithm ring --size 1GiB", 85187 * 0.999, 85187 * 1.001),
        ("--algorithm ring --size 1KiB", 630.0, 630.2),
        ("--algorithm double_binary_tree --size 1GiB", 84557, 89000),
        ("--algorithm double_binary_tree --size 1KiB", 60, 70),
        ("--algorithm tree --size 1GiB", 128849, 137000),
        ("--algorithm halving_doubling --size 1GiB", 84616, 84618),
    ],
)
def test_the_textbook_cases(rows, words, low_us, high_us):
    (row,) = rows(f"{STAR} {words} --engine simpy")
    assert low_us <= row["time_s"] * 1e6 <= high_us
    assert row["engine"] == "simpy"
    assert row["time_lo_s"] == row["time_s"] == row["time_hi_s"]


def test_simulate_prints_a_table_in_nccl_tests_manner(silently):
    out = silently("simulate allreduce --cluster star:4 -b 1M -e 4M --algorithm ring")
    assert out.splitlines()[1:6] == [
        "#     size    time   algbw   busbw  algorithm  protocol  engine",
        "#      (B)    (us)  (GB/s)  (GB/s)",
        "   1048576   92.91   11.29   16.93       ring      auto   simpy",
        "   2097152  155.83   13.46   20.19       ring      auto   simpy",
        "   4194304  281.66   14.89   22.34       ring      auto   simpy",
    ]


@pytest.mark.slow
def test_engine_model_gives_the_closed_form_without_simulating(rows):
    (row,) = rows("simulate all_reduce --cluster star:24576 --algorithm ring --size 1G --engine model")
    assert row["time_s"] == pytest.approx(2 * 24575 * (5e-6 + 2**30 / 24576 / 25e9))


def test_trace_has_a_track_for_each_rank_and_link(printed, tmp_path):
    printed("simulate all_reduce --cluster star:4 --size 64K --trace t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {f"rank {r}" for r in range(4)} <= names
    assert {f"gpu{r} -> switch" for r in range(4)} <= names


def test_topo_lists_describes_writes_and_draws(json_of, printed, tmp_path):
    assert "dgx-h100:NODES" in printed("topo")
    out = printed("topo dgx-a100 --nodes 2 --set nic=50GB/s -o t.yaml --plot t.svg")
    assert out.startswith("# dgx-a100: 16 ranks, machines: 2")
    assert (tmp_path / "t.svg").read_text().startswith("<?xml")
    assert json_of("topo", "t.yaml")["ranks"] == 16


@pytest.mark.parametrize("words", ["star:9 --schedule double_binary_tree", "dgx-h100:2 --schedule ring"])
def test_topo_shows_and_draws_a_schedule(printed, tmp_path, words):
    assert "channel  0" in printed(f"topo {words} --plot s.png")
    assert (tmp_path / "s.png").stat().st_size > 5000


def test_topo_prints_nccls_channels_as_its_log_does_and_why_there_are_so_many(printed, json_of):
    lines = printed("topo dgx-h100:2 --channels").splitlines()
    assert lines[0].startswith("# 16 channels of NCCL on the 16 ranks of dgx-h100:2")
    assert any(line.startswith("# 8 channels: NCCL's search finds 8 of 48 GB/s each, 384") for line in lines)
    assert "Channel 00/16 : 0 7 6 5 4 3 2 1 9 10 11 12 13 14 15 8" in lines
    assert any(line.startswith("Trees [0] 1/8/-1->0->-1 [1] ") for line in lines)
    channels = json_of("topo h100-1gpu:1 --set ranks_per_gpu=2 --channels")["channels"]
    assert channels[63] == {"channel": 63, "ring": [0, 1], "tree_parent": [-1, 0]}


def test_nccl_is_the_default_on_machines_and_says_on_what_its_times_rest(rows, printed):
    bare = "simulate all_reduce --cluster dgx-h100:2 --size 1M --calibration none"
    assert "not calibrated" in printed(bare)
    assert "times as measured (dgx-h100: " in printed("simulate all_reduce --cluster dgx-h100:2 --size 1M")
    out = printed("simulate all_reduce --cluster gcp-a3mega:2 --size 1M")
    assert "no measurement of gcp-a3mega is shipped; family:dgx-h100 has the same box" in out
    (row,) = rows(bare)
    assert (row["algorithm"], row["protocol"]) == ("tree", "ll128")
    assert row["tuner_us"] == min(row["choices_us"].values())
    assert row["time_s"] == pytest.approx(row["tuner_us"] * 1e-6 + 2e-6)


def test_nccl_pins_and_refusals_speak_nccls_language(rows, refused):
    pinned = "simulate all_reduce --cluster dgx-a100:4 --algorithm ring;allreduce:tree --protocol ^ll"
    (row,) = rows(f"{pinned} --size 1M")
    assert row["algorithm"] == "tree"
    assert not any(pair.endswith("/ll") for pair in row["choices_us"])
    err = refused("simulate all_gather --cluster dgx-h100:2 --algorithm tree --size 1M")
    assert "No algorithm/protocol available for function AllGather" in err
    assert "ring;allreduce:tree" in err


def test_nccl_simulated_leaves_a_trace(rows, tmp_path):
    words = "simulate all_reduce --cluster dgx-a100 --algorithm ring --protocol simple --engine simpy"
    (row,) = rows(f"{words} --size 1M --trace t.json")
    assert row["engine"] == "simpy"
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


@pytest.mark.slow
def test_pick_prints_draws_and_writes_rules(printed, tmp_path):
    words = "pick all_reduce --cluster dgx-h100 --nodes 1,2,16 --plot p.png --tuner-csv t.csv"
    assert "nvls_tree" in printed(words)
    assert (tmp_path / "p.png").stat().st_size > 5000
    rules = [line.split(",") for line in (tmp_path / "t.csv").read_text().splitlines() if line[0] != "#"]
    assert all(len(rule) == 10 and int(rule[5]) > 0 for rule in rules)
    assert {rule[0] for rule in rules} == {"allreduce", "allgather", "reducescatter", "broadcast", "reduce"}


def measured(tmp_path):
    sizes = [2**power for power in range(12, 25)]
    lines = [to_line(record(nbytes=nbytes, time_s=6 * (20e-6 + nbytes / 4 / 1e9))) for nbytes in sizes]
    (tmp_path / "fit.jsonl").write_text("\n".join(lines[::2]) + "\n")
    (tmp_path / "rest.jsonl").write_text("\n".join(lines[1::2]) + "\n")


def test_calibrate_then_compare(json_of, printed, tmp_path):
    measured(tmp_path)
    assert "alpha           20 us" in printed("calibrate fit.jsonl --cluster star -o c.yaml")
    content = json_of(
        "compare fit.jsonl rest.jsonl --cluster star --calibration c.yaml --plot c.svg --max-error 1%"
    )
    assert content["summary"]["held_out"]["rows"] == 6
    assert content["summary"]["fitted"]["rows"] == 7
    assert {row["set"] for row in content["rows"]} == {"fitted", "held_out"}
    assert (tmp_path / "c.svg").exists()
    printed("simulate all_reduce --cluster star:4 --calibration c.yaml --size 1M")


def test_compare_exits_1_past_the_limit(ringside, tmp_path):
    measured(tmp_path)
    code, _, err = ringside(*"compare rest.jsonl --cluster star --max-error 1%".split())
    assert code == 1
    assert "median error above 1% in rows unfitted" in err


def test_what_is_too_large_to_be_proved_is_said_to_be(rows, silently, monkeypatch):
    from ringside.sim import algorithms

    monkeypatch.setitem(algorithms.ALGORITHMS, "mine", {})
    monkeypatch.setattr(algorithms, "_REGISTERED", set())
    monkeypatch.setattr(algorithms, "MAX_PROVED", 99)
    algorithms.register("mine", "all_reduce", algorithms.ALGORITHMS["ring"]["all_reduce"])
    words = "simulate all_reduce --cluster star:9 -b 1M -e 2M --algorithm mine"
    message = "mine all_reduce on 9 ranks is not proved, because it has more than 99 transfers"
    caveats = [line for line in silently(words).splitlines() if "proved" in line]
    assert {*caveats} == {f"# {message}; Schedule.check() proves it"}
    for row in rows(words):
        assert row["caveat"].startswith(message)
