import re
from dataclasses import replace
from pathlib import Path

import pytest

from ringside.sim.record import write
from ringside.validation.readers import read

TOP = Path(__file__).parents[3]
PUBLISHED = TOP / "validation" / "published"


RUN = PUBLISHED / "abci2_a100_all_reduce_n4_r32.json"


@pytest.fixture
def late(tmp_path):
    write([replace(r, time_s=r.time_s + 200e-6) for r in read(RUN).records], tmp_path / "late.jsonl")
    return "late.jsonl"


def test_json_says_the_same(json_of, late):
    content = json_of("explain", late)
    assert content["schema"] == "ringside.explain/1"
    assert (content["departs"], content["clear"]) == (True, True)
    assert content["causes"][0]["cause"] == "wait"
    assert [len(one["value"]) for one in content["tried"] if one["cause"] == "sockets"] == [2]
    slow = [row for row in content["rows"] if row["slow"]]
    assert slow
    assert all(row["measured_s"] > row["family_hi_s"] for row in slow)


def test_a_slow_log_is_given_its_cause_and_what_settles_it(printed, late):
    out = printed("explain", late)
    wait = re.search(r"# - every collective takes (\d+) us more, at every size", out)
    assert wait
    assert 150 <= int(wait[1]) <= 260
    assert "to decide: run one process per GPU" in out


def test_what_cannot_be_explained_is_refused(refused):
    for words, message in {
        ("nowhere.log",): "no such file",
        (RUN, "--calibration", "none"): "--calibration",
        (RUN, "--cluster", "dgx-h100"): "not of dgx-h100",
        (PUBLISHED / "dgx2_v100_g12_broadcast.json",): "all_reduce, all_gather and reduce_scatter",
    }.items():
        assert message in refused("explain", *words)
