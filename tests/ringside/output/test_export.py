"""Export to other tools' formats, and import, on the command line."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.formats import FormatError
from ringside.sim.formats.msccl_write import MAX_STEPS, dumps
from tests.sim.formats.files import DATA

HALO = Path(__file__).parents[3] / "examples" / "halo_exchange.py"
SIMULATE = "simulate all_reduce --cluster star:4 --size 64K --library ideal --algorithm ring"


def test_a_schedule_is_written_for_msccl_and_read_again(json_of, printed):
    assert "# written to ring.xml; lost are the size" in printed(f"{SIMULATE} --export ring.xml")
    content = json_of("simulate ring.xml --cluster star:4 --size 64K")
    assert content["inputs"]["file"] == "ring.xml"
    assert content["inputs"]["collective"] == "all_reduce"
    alone = json_of(*SIMULATE.split(), "--engine", "simpy")
    assert content["rows"][0]["time_s"] == pytest.approx(alone["rows"][0]["time_s"], rel=1e-12)


def test_a_schedule_is_written_as_goal_and_simulated_as_a_program(json_of, printed):
    printed(*SIMULATE.split(), "--export", "ring.goal")
    content = json_of("program ring.goal --cluster star:4")
    assert content["inputs"]["library"] == "ideal"
    alone = json_of(*SIMULATE.split(), "--engine", "simpy")
    assert content["makespan_s"] == pytest.approx(alone["rows"][0]["time_s"], rel=1e-9)


def test_a_file_has_traces_and_links_as_a_collective_has(printed, tmp_path):
    printed(*SIMULATE.split(), "--export", "ring.xml")
    words = "simulate ring.xml --cluster star:4 --size 64K --trace t.json --links --set latency=1us"
    assert "busiest links" in printed(words)
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_a_file_that_calls_itself_as_we_call_a_closed_form_is_simulated(refused):
    text = (DATA / "astra_custom_ring_allreduce_8.xml").read_text()
    Path("r.xml").write_text(text.replace('name="allreduce_ring_1channelsperring"', 'name="direct"'))
    words = "simulate r.xml --cluster star:8 --size 1M --engine model"
    assert "has no closed form" in refused(words)


def test_a_size_that_the_runtime_leaves_to_others_is_said(printed):
    file = DATA / "azure_ncv4_ar_hier_12_Simple.xml"
    words = f"simulate {file} --cluster star:4 --json --size"
    caveats = [json.loads(printed(*words.split(), size))["rows"][0].get("caveat") for size in ("1M", "2G")]
    assert caveats == [
        None,
        f"{2**31} B: the file is for 617472 to 1073741824 B, and MSCCL leaves other sizes to NCCL",
    ]


def test_a_program_goes_round_by_goal(printed, tmp_path):
    out = printed("program", HALO, "-g", "4", "--export", "a.goal")
    assert "# written to a.goal" in out
    assert "collectives (all_reduce) are written as their transfers" in out
    out = printed("program a.goal --cluster star:4 --export b.goal --trace t.json")
    assert "written to b.goal" in out
    assert (tmp_path / "a.goal").read_text() == (tmp_path / "b.goal").read_text()
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    printed("program --job a.goal --job b.goal --cluster star:8")
    printed("program a.goal --cluster star:4 --fold")


def test_a_program_goes_round_by_chakra(json_of, printed, tmp_path):
    pytest.importorskip("google.protobuf.proto")
    printed("program", HALO, "-g", "4", "--export", "traces")
    assert {file.name for file in (tmp_path / "traces").iterdir()} == {
        f"halo_exchange.{rank}.et" for rank in range(4)
    }
    by_folder = json_of("program traces --cluster star:4")
    by_file = json_of("program traces/halo_exchange.2.et --cluster star:4")
    assert by_folder["ranks"] == by_file["ranks"]
    printed("program traces -g 4 --export again --library nccl")
    for file in (tmp_path / "traces").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_the_verdict_and_what_was_written_stand_in_the_json(json_of):
    content = json_of("program", HALO, "-g", "4", "--export", "a.goal")
    assert content["verdict"] == "proved"
    assert content["export"] == "a.goal"
    assert content["lost"]
    shutil.copy(DATA / "small_chakra.0.json", "s.0.json")
    content = json_of("program s.0.json")
    assert "7 dependencies on nodes that are missing from the files are left out" in content["notes"]


def test_a_schedule_of_nccls_is_written_with_its_protocol(printed, tmp_path):
    words = (
        "simulate all_reduce --cluster dgx-h100 --size 64K --protocol ll128 --algorithm ring --export x.xml"
    )
    printed(words)
    assert 'proto="LL128"' in (tmp_path / "x.xml").read_text()[:300]


def test_what_is_not_proved_is_not_written(ringside, tmp_path):
    script = "def main(dist):\n    dist.send(4, 1 - dist.get_rank())\n    dist.recv(4, 1 - dist.get_rank())\n"
    (tmp_path / "p.py").write_text(script)
    code, out, _ = ringside(*"program p.py -g 2 --export p.goal".split())
    assert (code, "hangs" in out, "written" in out) == (1, True, False)
    code, _, _ = ringside(*"program p.py -g 2 --cluster star:2 --export p.goal".split())
    assert code == 1
    assert [file.name for file in tmp_path.iterdir()] == ["p.py"]


PAGE = (HALO.parents[1] / "docs" / "formats.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_limits_that_the_page_names_are_those():
    page = " ".join(PAGE.split())
    ring, direct = (
        int(re.search(rf"{words} on more than (\d+)", page)[1]) for words in ("ring", "all-to-all")
    )
    assert 2 * (ring - 1) == MAX_STEPS  # a rank's steps in the all-reduce, each way
    assert dumps(schedule("direct", Collective("all_to_all", direct, 4 * direct)))
    with pytest.raises(FormatError, match="more than"):
        dumps(schedule("direct", Collective("all_to_all", direct + 1, 4 * (direct + 1))))


REFUSED = [
    (f"{SIMULATE} --export x", "not a format of schedules"),
    (f"{SIMULATE} --export x.xml --trace x.xml", "another output has this path"),
    ("simulate all_reduce --cluster dgx-h100 --size 4M --algorithm nvls --export x.xml", "adds in switches"),
    ("simulate ring.xml --cluster star:3", "4 ranks, but star has 3"),
    ("simulate ring.xml --cluster star:8 -g 8", "-g 8, but the file has 4 ranks; remove -g"),
    ("simulate ring.xml --cluster star:4 --library nccl", "contains the schedule; remove --library"),
    ("simulate ring.xml --cluster star:4 --algorithm tree", "the file has its own"),
    ("simulate ring.xml --cluster star:4 --protocol ll", "does not take --protocol"),
    ("simulate ring.xml --cluster star:4 --size 4K --export ring.xml", "it is an input"),
    ("program ring.goal -g 5", "5 ranks, but ring.goal has 4; remove the number"),
    ("program ring.goal --real", "ring.goal: --real runs scripts only"),
    ("program ring.goal --library nccl --eager", "--eager applies to scripts"),
    ("program ring.goal --check --export x.goal", "--export: --check only proves"),
    ("program ring.goal --real --export x.goal", "--export: --real runs the job"),
    ("program ring.goal --export x.xml", "x.xml: not a format of programs; write FILE.goal, or a new folder"),
    ("program ring.goal --export ring.goal", "it is an input"),
    ("program ring.goal --export full", "it exists and is not an empty folder"),
    ("program ring.goal --export no/such/folder", "is not a writable folder"),
    ("program ring.goal --cluster star:3", "4 ranks"),
    (
        "program --job ring.goal --job ring.goal --cluster star:8 --export x.goal",
        "trace or export shows one job",
    ),
    ("program --job ring.goal:3 --cluster star:8", "3 ranks, but ring.goal has 4"),
    ("program full", "full: a folder without Chakra traces"),
    ("program job.py --export x.goal", "job.py needs a number of ranks; write -g N"),
    ("program job.py -g 2 --library nccl --export x.goal", "depends on the machines; add --cluster NAME"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[words for words, _ in REFUSED])
def test_words_are_refused_and_nothing_is_written(printed, refused, tmp_path, words, message):
    printed(*SIMULATE.split(), "--export", "ring.goal")
    printed(*SIMULATE.split(), "--export", "ring.xml")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    (tmp_path / "job.py").write_text("def main(dist):\n    dist.all_reduce(8)\n")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert message in refused(words)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_who_has_no_protobuf_is_told_so(refused, monkeypatch):
    for name in list(sys.modules):
        if name.startswith(("google.protobuf", "ringside.sim.formats.chakra_sch")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    said = refused("program", HALO, "-g", "4", "--export", "t")
    assert "need protobuf; write pip install 'ringside-sim[formats]'" in said
    assert not Path("t").exists()
