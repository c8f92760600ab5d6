"""``ringside trace``: its output for traces of PyTorch's profiler."""

import gzip
import json
import re
from pathlib import Path

from tests.validation.traces.kineto_jobs import Rank

TOP = Path(__file__).parents[3]
DATA = TOP / "tests/validation/data/kineto"
PAGE = (TOP / "docs/traces.md").read_text(encoding="utf-8")


def test_a_replay_is_drawn_and_written(ringside, tmp_path):
    code, out, err = ringside(
        *("trace", DATA / "dlrm", "--cluster", "star:8", "--plot", "traces.png", "--trace", "replay.json")
    )
    assert code == 0, err
    assert out
    assert (tmp_path / "traces.png").stat().st_size > 10_000
    events = json.loads((tmp_path / "replay.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == set(range(8))


def test_the_page_shows_what_is_printed(on_screen):
    _, out, _ = on_screen("trace", DATA / "dlrm")
    shown = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)[1]
    assert out.startswith(shown)


def test_json_says_what_the_page_lists(json_of):
    answer = json_of("trace", DATA / "dlrm", "--cluster", "dgx-h100:1")
    listed = set(re.findall(r"`(\w+)`", PAGE[PAGE.index("## JSON") :]))
    assert answer["schema"] == "ringside.trace/1"
    parts = (
        answer["traces"][0],
        answer["traces"][0]["collectives"][0],
        answer["rows"][0],
        answer["ranks"][0],
    )
    for part in (*parts, answer["clocks"], answer["replay"], answer["replay"]["cluster"]):
        assert set(part) - {"rank"} <= listed
    assert set(answer) - {"schema", "inputs"} <= listed


def test_rows_count_every_collective(json_of):
    answer = json_of("trace", DATA / "mi300x8_ddp.json.gz")
    (trace,) = answer["traces"]
    assert sum(row["count"] for row in answer["rows"]) == len(trace["collectives"]) == 17
    assert answer["clocks"] is None
    assert answer["replay"]["own"] is None
    assert "not modelled" in answer["replay"]["own_why"]


def test_one_rank_says_that_skew_is_not_known(printed):
    out = printed("trace", DATA / "a100x2_sized.json.gz", "--each", "--all")
    assert "skew and transfer cannot be separated" in out
    assert "shortest" in out
    assert "skew" not in next(line for line in out.splitlines() if "kind" in line)
    assert sum("ProfilerStep#" in line for line in out.splitlines()) >= 10


def test_a_trace_without_collectives_says_so(printed):
    out = printed("trace", DATA / "mi250.json.gz")
    assert "no collectives: none of its 16 kernels and operators is NCCL's, RCCL's or Gloo's" in out


def test_a_trace_that_is_cut_off_is_refused_and_nothing_is_written(refused, tmp_path):
    text = gzip.decompress((DATA / "gloo_rank34.json.gz").read_bytes()).decode()
    (tmp_path / "cut.json").write_text(text[:-100])
    err = refused("trace", "cut.json", "--plot", "p.png", "--trace", "t.json")
    assert re.search(r"cut\.json, line 1, character \d+, event \d+: broken or cut off JSON", err)
    assert [path.name for path in tmp_path.iterdir()] == ["cut.json"]


def test_a_trace_is_not_overwritten(refused, tmp_path):
    (tmp_path / "rank0.json.gz").write_bytes((DATA / "mi250.json.gz").read_bytes())
    assert "it is an input" in refused("trace", "rank0.json.gz", "--trace", "rank0.json.gz")


def test_a_cluster_that_is_too_small_is_refused(refused):
    assert "8 ranks" in refused("trace", DATA / "dlrm", "--cluster", "star:4")


def test_a_group_that_is_not_named_is_told_by_its_sizes(ringside, tmp_path):
    rank = Rank(0, 16)
    unnamed = {"Group size": -1, "Process Group Name": "", "Process Group Ranks": "[...]"}
    rank.collective("all_gather", 100, 800, "Float", 100, 50, **unnamed)
    rank.collective("all_reduce", 100, 100, "Float", 300, 50, **unnamed)
    out = ringside("trace", rank.write(tmp_path))[1]
    assert "1 of 2 calls have no group name: by their input and output sizes they are of 8 ranks" in out
    assert "1 of 2 calls have no group name: assumed to be of all 16 ranks" in out
    assert re.search(r"all_gather +3200 +8 ", out)


def test_a_bomb_is_told_as_what_it_is(refused, tmp_path, monkeypatch):
    from ringside.validation.readers.kineto import files

    monkeypatch.setattr(files, "MAX_BYTES", 2**20)
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 2**24))
    assert "x.json.gz: more than 1,048,576 bytes unpacked" in refused("trace", "x.json.gz")
