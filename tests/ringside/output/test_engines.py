"""The engine used and the source of the time, in tables, JSON and progress output."""

import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest

from ringside.sim import effort, jit
from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine import fast, maxplus
from ringside.topologies import star

FABRIC = (
    "simulate", "all_reduce", "--cluster", "dgx-h100:64", "--set", "fabric=rail_optimized",
    "--set", "oversubscription=4", "--protocol", "simple", "--calibration", "none", "--size", "1G",
)  # fmt: skip


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize(
    ("times", "said"),
    [("tuner", "it adds .* by closed form"), ("pipeline", "time_s is the closed form's time")],
)
def test_a_closed_form_on_a_fabric_is_called_one_in_text_and_json(json_of, printed, algorithm, times, said):
    asked = (*FABRIC, "--algorithm", algorithm, "--times", times)
    text = printed(*asked)
    answer = json_of(*asked)
    (row,) = answer["rows"]
    assert row["engine"] == "model"
    assert "model" in text.split()
    for told in (text, f"{answer['note']}; {row['caveat']}"):
        assert re.search(said, told)


@pytest.mark.parametrize("engine", ["simpy", "fast"])
def test_times_that_were_played_are_called_the_engines(printed, engine):
    pytest.importorskip("numba")
    asked = ("simulate", "all_reduce", "--cluster", "dgx-a100:2", "--algorithm", "tree", "--size", "1M")
    text = printed(*asked, "--protocol", "simple", "--engine", engine)
    assert "time_s is the engine's time" in text
    assert f" {engine} " in text


def test_without_numba_the_answer_is_simpys_and_says_why(ringside, json_of, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    asked = ("simulate", "all_reduce", "--cluster", "star:8", "--algorithm", "tree", "--size", "1M", "--json")
    code, out, err = ringside(*asked, "--engine", "fast")
    assert code == 0
    assert "SimPy plays this; write pip install 'ringside-sim[fast]'" in err
    (row,) = json.loads(out)["rows"]
    assert row["engine"] == "simpy"
    assert json_of(*asked, "--engine", "simpy")["rows"] == [row]


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("algorithm", ["tree", "ring"])
def test_compiling_is_said_where_it_was_not_done_before(monkeypatch, algorithm, is_kept):
    pytest.importorskip("numba")
    monkeypatch.setattr(jit, "is_kept", lambda function: is_kept)
    monkeypatch.setattr(maxplus, "MANY", 0)
    said = []
    with effort.watched(said.append, lambda done, total: None):
        run = fast.simulate(schedule(algorithm, Collective("all_reduce", 8, 1 << 20)), star(8))
    assert run.engine == "fast"
    assert [line.split()[0] for line in said] == ([] if is_kept else ["compiling"])


def test_what_was_compiled_is_kept_until_its_file_changes(tmp_path):
    pytest.importorskip("numba")
    source = tmp_path / "doubled.py"
    source.write_text(
        "from ringside.sim.jit import entry\n\n@entry\ndef doubled(number):\n    return 2 * number\n"
    )
    doubled = _module(source).doubled
    assert not jit.is_kept(doubled)
    assert doubled(21) == 42
    assert jit.is_kept(doubled)
    again = _module(source).doubled
    assert jit.is_kept(again)
    assert again(21) == 42
    assert sum(again.stats.cache_hits.values()) == 1
    (kept,) = Path(doubled.stats.cache_path).glob("doubled.*.nbi")
    later = kept.stat().st_mtime + 10
    os.utime(source, (later, later))
    assert not jit.is_kept(doubled)


def _module(source):
    spec = importlib.util.spec_from_file_location(source.stem, source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
