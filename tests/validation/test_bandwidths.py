"""A site's bus bandwidths by nodes, as they scale NCCL, a training and a search."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.calibration import Calibration, bare, read, shipped
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.library import answer
from ringside.sim.libraries.nccl.fabric_factors import FabricFactor, factor_of
from ringside.sim.questions.collective_time import CollectiveTime
from ringside.sim.record import RecordError
from ringside.validation.nccl.anchor import read_anchor, with_rows_of
from ringside.validation.questions.layout_search import LayoutSearch
from ringside.validation.questions.step_time import StepTime
from ringside.validation.readers.bandwidth_table import LARGE, is_bandwidth_table, read_bandwidth_table
from ringside.validation.training.decay import DECAY, DecayedSteps, factors

TABLE = "collective,nodes,busbw\nall_reduce,2,300\nall_reduce,8,100\nAllGather,2,200\nsendrecv,2,20\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "site.csv"
    path.write_text(TABLE)
    return path


def _scaled(path: Path, machine: str = "dgx-h100") -> Calibration:
    anchor, known = read_anchor(str(path)), shipped(machine)
    return anchor.scale(known or bare(machine), machine, {})


def _busbw(
    calibration: Calibration | None, nodes: int, kind: str = "all_reduce", nbytes: int = LARGE
) -> float:
    library = find_library("nccl", f"dgx-h100:{nodes}", calibration=calibration)
    return answer(library, Collective(kind, library.ranks, nbytes, dtype="float32")).busbw / 1e9


def test_a_sites_rows_are_met_and_nodes_between_lie_between(table: Path) -> None:
    site = _scaled(table)
    assert _busbw(site, 2) == pytest.approx(300, rel=1e-3)
    assert _busbw(site, 8) == pytest.approx(100, rel=1e-3)
    assert 100 < _busbw(site, 4) < 300
    assert _busbw(site, 2, "all_gather") == pytest.approx(200, rel=1e-3)


def test_beyond_the_table_its_last_factor_stays(table: Path) -> None:
    site, usual = _scaled(table), shipped("dgx-h100")
    ratio = _busbw(usual, 8) / _busbw(site, 8)
    assert _busbw(usual, 32) / _busbw(site, 32) == pytest.approx(ratio, rel=0.02)


@pytest.mark.parametrize("rate", [1000, 1e12, 1e298])
def test_a_rate_that_the_links_do_not_carry_is_no_row(tmp_path: Path, rate: float) -> None:
    path = tmp_path / "site.csv"
    path.write_text(f"collective,nodes,busbw\nall_reduce,4,{rate}\n")
    with pytest.raises(RecordError, match=r"the links of dgx-h100 carry at most .* on 32 GPUs"):
        _scaled(path)


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]), st.sampled_from([2, 4, 16]),
    st.integers(10, 33), st.floats(1e-3, 1e3),
)  # fmt: skip
def test_no_factor_has_bytes_beat_their_traffic(kind: str, nodes: int, power: int, factor: float) -> None:
    known = shipped("dgx-h100")
    assert known
    site = replace(known, fabric=(FabricFactor(collective=kind, nodes=2, nbytes=1 << 30, factor=factor),))
    library = find_library("nccl", f"dgx-h100:{nodes}", calibration=site)
    collective = Collective(kind, library.ranks, 2**power, dtype="float32")
    candidate = library.choose(collective)
    made = library.time(collective, candidate)
    assert library.bound(collective, candidate) <= made.time_lo_s <= made.time_s <= made.time_hi_s


def test_a_machine_alone_and_a_small_message_stay_as_they_were(table: Path) -> None:
    site, usual = _scaled(table), shipped("dgx-h100")
    assert _busbw(site, 1) == _busbw(usual, 1)
    assert _busbw(site, 8, nbytes=256) == pytest.approx(_busbw(usual, 8, nbytes=256), rel=0.01)


def test_a_ring_stands_in_for_another_and_not_for_sends() -> None:
    rows = (
        FabricFactor(collective="all_gather", nodes=2, nbytes=LARGE, factor=2.0),
        FabricFactor(collective="all_reduce", nodes=2, nbytes=LARGE, factor=4.0),
    )
    assert factor_of(rows, "reduce_scatter", 2, LARGE) == 2.0
    assert factor_of(rows, "all_reduce", 2, LARGE) == 4.0
    assert factor_of(rows, "all_to_all", 2, LARGE) == 1.0
    assert factor_of(rows, "sendrecv", 2, LARGE) == 1.0


def test_sizes_are_interpolated() -> None:
    rows = [
        FabricFactor(collective="all_gather", nodes=2, nbytes=nbytes, factor=factor)
        for nbytes, factor in ((1 << 20, 1.0), (1 << 30, 4.0))
    ]
    assert factor_of(rows, "all_gather", 2, 1 << 25) == pytest.approx(2.0)
    assert factor_of(rows, "all_gather", 2, 1 << 34) == pytest.approx(4.0)


def test_repeated_rows_count_once_each(tmp_path: Path) -> None:
    path = tmp_path / "site.json"
    rows = [
        f'{{"collective": "all_reduce", "gpus": 16, "busbw": {rate}, "size": "1G"}}' for rate in (100, 400)
    ]
    path.write_text(f"[{', '.join(rows)}]")
    assert _busbw(_scaled(path), 2) == pytest.approx(200, rel=0.02)


def test_a_calibration_file_keeps_the_factors(table: Path, tmp_path: Path) -> None:
    site = _scaled(table)
    site.write(tmp_path / "site.yaml")
    assert read(tmp_path / "site.yaml") == site


def test_a_machine_without_measurements_is_scaled_too(table: Path) -> None:
    assert shipped("gcp-a3mega") is None
    question = CollectiveTime(
        collective="all_reduce",
        cluster="gcp-a3mega:8",
        begin=LARGE,
        end=LARGE,
        anchor=read_anchor(str(table)),
    )
    (row,) = question.ask().rows
    assert row["busbw_GBps"] == pytest.approx(100, rel=1e-3)


def test_a_table_has_no_measured_rows_to_leave_out(table: Path) -> None:
    site = _scaled(table)
    assert with_rows_of(site, read_anchor(str(table)), []) is site


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("all_reduce,2,0", "line 2: no finite bus bandwidth above 0"),
        ("all_reduce,2,fast", "line 2: no finite bus bandwidth above 0"),
        ("all_reduce,,100", "line 2: neither nodes nor gpus"),
        ("all_reduce,two,100", "line 2: 'two' nodes"),
        ("all_reduce,1.5,100", "line 2: '1.5' nodes"),
        ("all_sum,2,100", "line 2: unknown collective 'all_sum'"),
        ("", "no row below the heading"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, problem: str) -> None:
    path = tmp_path / "site.csv"
    path.write_text(f"collective,nodes,busbw\n{row}\n")
    with pytest.raises(RecordError, match=problem):
        read_anchor(str(path))


def test_gpus_that_fill_no_machines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_text("collective,gpus,busbw\nall_reduce,12,100\n")
    with pytest.raises(RecordError, match="12 GPUs, which 8 on each machine do not make"):
        _scaled(path)


def test_a_log_is_no_table() -> None:
    assert not is_bandwidth_table("# nThread 1 nGpus 8\n 8 2 float sum -1 30 0.00 0.00 0")
    assert not is_bandwidth_table('[{"numCycle": 0, "size": 8}]')
    assert is_bandwidth_table(TABLE)


def test_a_training_takes_longer_on_the_sites_fabric(table: Path) -> None:
    question = StepTime(model="llama3-8b:1024,layers=4", cluster="dgx-h100:8", strategy="fsdp", batch=1)
    slow = replace(question, anchor=read_anchor(str(table)))
    assert slow.step().step_s > 1.2 * question.step().step_s


def test_the_published_fabric_falls_with_nodes() -> None:
    rows = read_bandwidth_table(DECAY.read_text(), DECAY)
    assert len(rows) == 21
    between = [one for one in factors() if one.collective == "all_gather" and one.nodes > 1]
    assert [one.factor for one in between] == sorted(one.factor for one in between)
    assert between[-1].factor > 10


def test_places_that_change_are_counted() -> None:
    assert DecayedSteps([1.0, 2.0, 3.0]).moved == 0
    assert DecayedSteps([5.0, 4.0, 6.0]).moved == 2
    assert "number 2 is the fastest there, and number 1 takes 5 s" in DecayedSteps([5.0, 4]).note
    assert "number 1 stays first, and takes 4 s" in DecayedSteps([4.0, 5.0]).note
    # five seconds on 16 GPUs cost more than eight on 8
    assert "number 2 is the cheapest there, and number 1 takes 5 s" in DecayedSteps([5.0, 8.0], [16, 8]).note


@pytest.mark.slow
def test_a_search_says_how_far_it_rests_on_an_unknown_fabric(table: Path) -> None:
    question = LayoutSearch(
        model="llama3-8b", cluster="dgx-h100:2", global_batch=64, tp=2, top=3, strategy="fsdp", pp=1,
        fixed=("pp",), checkpointing="none",
    )  # fmt: skip
    (note,) = [one for one in question.ask().notes if "`anchor` TABLE" in one]
    assert "of these" in note
    known = replace(question, anchor=read_anchor(str(table))).ask()
    assert not any("`anchor` TABLE" in one for one in known.notes)
    assert known.decayed is None
    cheapest = replace(question, by="cost", tokens=1e12).ask()
    assert any("`anchor` TABLE" in one for one in cheapest.notes)
    alone = replace(question, cluster="dgx-h100:1").ask()
    assert alone.decayed is None
