"""MPI's model on published rows: held-out ones are predicted, shipped calibrations are made from them."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.calibration import SHIPPED_MPI, CalibrationError, read, shipped
from ringside.sim.collective import Collective
from ringside.sim.libraries.mpi.decisions import decide
from ringside.sim.libraries.mpi.form import MpiTask, NodePort
from ringside.sim.libraries.mpi.measured import PER_DOUBLING, MpiModel
from ringside.sim.record import RecordError, collective_of
from ringside.validation.calibrate import calibrate, report
from ringside.validation.compare import compare, summaries
from ringside.validation.mpi.fit import calibrate_mpi
from ringside.validation.mpi.growth import growth
from ringside.validation.mpi.observed import is_observable, observed
from ringside.validation.published.mpi import PICO, published_mpi
from ringside.validation.published.mpi.__main__ import lines
from ringside.validation.published.mpi.calibrations import calibrations
from ringside.validation.readers import read as read_file
from ringside.validation.scorecard.judged import JudgedRow, TableResult, result, score
from ringside.validation.scorecard.mpi import SMALL, MpiSplit, splits, winners

RECORDS = published_mpi()
HEADER = "system,nnodes,tasks_per_node,collective,algorithm,dtype,buffer_bytes,median_ns,mpi_lib"


@pytest.fixture(scope="module")
def few_nodes() -> list[TableResult]:
    """Return the two calibrations on few nodes."""
    return [result(split.table) for split, _ in zip(splits(RECORDS), SMALL, strict=False)]


def median_error(split: MpiSplit) -> float:
    return score("", split.name, split.predicted(split.judged)).errors.median


def test_few_nodes_predict_many_within_15_percent_and_name_the_winner(few_nodes: list[TableResult]) -> None:
    for judged in few_nodes:
        name, (won, _) = judged.table.name, judged.counted
        assert score("", name, judged.rows).errors.median <= 0.15, name
        assert won.right >= 0.85 * won.of, name
        assert won.of >= 8


def test_no_row_is_judged_by_a_fit_that_it_took_part_in() -> None:
    for split in splits(RECORDS):
        assert split.fitted
        assert not {id(one) for one in split.fitted} & {id(one) for one in split.judged}


@pytest.mark.slow
def test_every_collective_is_predicted_by_the_others_within_a_quarter() -> None:
    others = [split for split in splits(RECORDS) if "fitted on all others" in split.name]
    assert {split.judged[0].collective for split in others} >= {"all_reduce", "broadcast", "all_to_all"}
    for split in others:
        if split.judged[0].collective in ("all_gather", "all_reduce", "all_to_all"):
            assert median_error(split) <= 0.25, split.name


def test_the_table_keeps_fitted_and_judged_apart(few_nodes: list[TableResult]) -> None:
    head, *shown = lines(few_nodes)
    assert head.index("rows fitted") < head.index("|") < head.index("judged")
    assert all(line.index("|") == head.index("|") for line in shown[:-1])


def shipped_mpi(machine: str) -> MpiModel:
    stored = read(SHIPPED_MPI / f"{machine}.yaml").mpi
    assert stored is not None
    return stored.model


def judged(algorithm: str, measured: float, predicted: float) -> JudgedRow:
    return JudgedRow(
        "star", algorithm, measured, predicted, traits={"cell": "all_reduce of 1 KiB on 4 nodes"}
    )


def won(*rows: JudgedRow) -> tuple[int, int, int]:
    fastest, tied = winners(rows)
    assert fastest.of == tied.of
    return fastest.of, fastest.right, tied.right


def test_a_winner_counts_strictly_and_within_a_tie() -> None:
    assert won(judged("ring", 1.0, 1.0), judged("rabenseifner", 1.05, 0.9)) == (1, 0, 1)
    assert won(judged("ring", 1.0, 1.0), judged("rabenseifner", 1.5, 0.9)) == (1, 0, 0)
    assert won(judged("ring", 1.0, 0.8), judged("rabenseifner", 1.5, 0.9)) == (1, 1, 1)
    assert won(judged("ring", 1.0, 0.8)) == (0, 0, 0)
    # the faster implementation of an algorithm stands for it
    again = judged("ring", 2.0, 0.7), judged("ring", 1.0, 0.8), judged("rabenseifner", 1.5, 0.75)
    assert won(*again) == (1, 0, 0)


def test_open_mpis_own_choice_took_as_long_as_what_the_rules_name() -> None:
    """Of rows of the default, beside the forced rows of the same job."""
    forced = {
        (one.cluster, one.ranks, one.num_nodes, one.collective, one.nbytes, one.algorithm): one.time_s
        for one in RECORDS
        if one.algorithm != "auto" and one.fingerprint["algorithm"].endswith("_ompi")
    }
    ratios = []
    for one in RECORDS:
        key = (one.cluster, one.ranks, one.num_nodes, one.collective, one.nbytes, decide(collective_of(one)))
        if one.algorithm == "auto" and key in forced:
            ratios.append(one.time_s / forced[key])
    near = [ratio for ratio in ratios if 0.9 < ratio < 1.1]
    assert len(ratios) > 80
    assert len(near) > 0.9 * len(ratios)


def test_what_is_shipped_is_made_from_the_published_rows() -> None:
    for machine, made in calibrations().items():
        kept = read(SHIPPED_MPI / f"{machine}.yaml")
        assert kept.mpi is not None
        assert made.mpi is not None
        assert kept.used == made.used
        assert kept.mpi.parameters == pytest.approx(made.mpi.parameters, rel=0.02)
        assert kept.mpi.median_error == pytest.approx(made.mpi.median_error, abs=0.005)


def test_published_rows_are_predicted_as_calibrated_and_without() -> None:
    mine = [one for one in RECORDS if one.cluster == "leonardo" and is_observable(one)]
    as_shipped = summaries(compare(mine, "leonardo"))
    assert set(as_shipped) == {"fitted", "held_out"}  # Open MPI's own choice was not fitted
    assert as_shipped["fitted"].median_error < 0.1
    assert as_shipped["held_out"].typical_factor < 1.2
    usual = summaries(compare(mine, "leonardo", calibration=None))
    assert set(usual) == {"unfitted"}
    assert usual["unfitted"].typical_factor < 1.6


def test_a_persons_own_rows_are_calibrated_and_reported(tmp_path: Path) -> None:
    mine = [one for one in RECORDS if one.cluster == "leonardo" and one.num_nodes <= 8]
    found = calibrate(mine, "leonardo")
    assert found.mpi is not None
    found.write(tmp_path / "mine.yaml")
    again = read(tmp_path / "mine.yaml")
    assert again == found
    text = report(again)
    assert f"mpi, leonardo: {found.mpi.rows} rows of Open MPI 4.1.6" in text
    assert "until a rendezvous moves its first byte" in text


def test_a_file_of_picos_is_read_as_records() -> None:
    record = next(one for one in RECORDS if one.fingerprint["algorithm"] == "linear_synch_ompi")
    assert (record.library, record.algorithm, record.collective) == ("mpi", "linear_sync", "gather")
    assert (record.cluster, record.ranks, record.num_nodes) == ("mare-nostrum", 32, 32)
    assert record.library_version == "Open MPI 4.1.5"
    assert not read_file(PICO).skipped


@pytest.mark.parametrize(
    ("row", "skipped"),
    [
        ("fugaku,2x2x2,1,ALLGATHER,default-recursive-doubling,int32,1024,5000,FJMPI 4.0.1", 0),
        ("leonardo,4,1,BCAST,binomial_ompi,int32,1024,5000,OMPI 4.1.6", 0),
        ("leonardo,4,1,ALLGATHER,bine_send_over,int32,1024,5000,OMPI 4.1.6", 1),  # no algorithm of MPI's
        ("leonardo,4,1,ALLGATHER,ring_ompi,int32,1024,0,OMPI 4.1.6", 1),
        ("leonardo,32,1,ALLGATHER,ring_ompi,int32,32,28,OMPI 4.1.6", 1),  # not an element a rank
        ("leonardo,8,1,ALLGATHER,ring_ompi,int32,32,4000,OMPI 4.1.6", 0),
        ("leonardo,4,1,ALLREDUCE,ring_ompi,int32,4,4000,OMPI 4.1.6", 0),
    ],
)
def test_rows_of_picos_are_told_apart(row: str, skipped: int, tmp_path: Path) -> None:
    usual = "leonardo,4,1,ALLREDUCE,default_ompi,int32,64,4000,OMPI 4.1.6"
    (tmp_path / "rows.csv").write_text(f"{HEADER}\n{usual}\n{row}\n")
    found = read_file(tmp_path / "rows.csv")
    assert (len(found.records), found.skipped) == (2 - skipped, skipped)
    if not skipped:
        assert found.records[1].num_nodes in (4, 8)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("leonardo,4,1,ALLGATHER,ring,int32,x,5,OMPI", "line 2: bytes is 'x'; expected a number"),
        ("leonardo,4,1,ALLGATHER,ring,int32,64,nan,OMPI", "line 2: median is 'nan'"),
        ("leonardo,0,1,ALLGATHER,ring,int32,64,5,OMPI", "0 nodes with 1 tasks each; expected 1 or more"),
        ("leonardo,4,1,ALLSPIN,ring,int32,64,5,OMPI", "unknown collective 'ALLSPIN'"),
        ("leonardo,4", "median is ''"),
    ],
)
def test_a_broken_row_of_picos_is_refused_with_its_place(row: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"{HEADER}\n{row}\n")
    with pytest.raises(RecordError, match=complaint):
        read_file(tmp_path / "rows.csv")


def test_a_calibration_of_other_things_is_refused() -> None:
    mine = [one for one in RECORDS if one.cluster == "leonardo"][:9]
    nccl = shipped("dgx-h100")
    with pytest.raises(CalibrationError, match="dgx-h100 is not of MPI"):
        compare(mine, "leonardo", calibration=nccl)
    with pytest.raises(RecordError, match="too few records of MPI to fit"):
        calibrate_mpi(mine[:3], "leonardo", {})
    with pytest.raises(RecordError, match="the records are of leonardo, not of mare-nostrum"):
        calibrate(mine, "mare-nostrum")


def test_rows_on_uneven_nodes_are_refused() -> None:
    record = next(one for one in RECORDS if is_observable(one))
    uneven = replace(record, ranks=7, num_nodes=2)
    with pytest.raises(RecordError, match="7 ranks on 2 nodes"):
        observed([uneven], "leonardo", {})


@pytest.mark.slow
def test_the_band_grows_so_that_four_of_five_rows_of_more_nodes_lie_in_it() -> None:
    machines = list(growth(RECORDS))
    assert [one.machine for one in machines] == ["leonardo", "mare-nostrum"]
    assert all(one.rows > 100 for one in machines)
    assert all(one.covered >= 0.8 for one in machines)
    assert max(one.per_doubling for one in machines) == pytest.approx(PER_DOUBLING, abs=0.02)


def width(model: MpiModel, nodes: int, tasks: int, size: int) -> float:
    """Return how many times the lower end of a ring's band its upper end is."""
    task = MpiTask(Collective("all_reduce", nodes * tasks, 2**size), "ring", NodePort(25.0, 50.0, 1.0, tasks))
    _, low, high = model.seconds([task])
    return float(high[0] / low[0])


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.sampled_from(["leonardo", "mare-nostrum"]), st.integers(0, 5), st.integers(0, 5), st.integers(6, 28)
)
def test_the_band_never_narrows_farther_from_what_was_measured(
    machine: str, nodes: int, tasks: int, size: int
) -> None:
    model = shipped_mpi(machine)
    most, each = max(model.nodes), 2**tasks
    assert width(model, most * 2 ** (nodes + 1), each, size) > width(model, most * 2**nodes, each, size)


@pytest.mark.slow
@given(st.sampled_from(["leonardo", "mare-nostrum"]), st.integers(6, 28), st.integers(0, 4))
def test_the_band_widens_with_tasks_beyond_those_measured(machine: str, size: int, doublings: int) -> None:
    model = shipped_mpi(machine)
    nodes, most = max(model.nodes), max(model.tasks)
    wider, narrower = (width(model, nodes, most * 2**power, size) for power in (doublings + 1, doublings))
    assert wider > narrower


@pytest.mark.parametrize(
    ("column", "notes", "ranks"),
    [
        (1, "null", 256),
        (1, "4 tasks per node", 1024),
        (1, "UCX_IB_SL=0 test, 32 ranks/node", 8192),
        (4, "4 tasks per node", 1024),
        (1, "testing 4 tasks", 256),
        (2, "New big test with all collectives", 512),
    ],
)
def test_tasks_a_node_are_read_from_the_notes(column: int, notes: str, ranks: int, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        f'{HEADER},notes\nleonardo,256,{column},ALLREDUCE,ring_ompi,int32,1048576,5000,OMPI 4.1.6,"{notes}"\n'
    )
    (record,) = read_file(tmp_path / "rows.csv").records
    assert (record.num_nodes, record.ranks) == (256, ranks)


def test_notes_that_contradict_the_column_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        f"{HEADER},notes\nleonardo,256,2,ALLREDUCE,ring_ompi,int32,1024,5000,OMPI 4.1.6,4 tasks per node\n"
    )
    with pytest.raises(RecordError, match="tasks_per_node is 2, but the notes say '4 tasks per node'"):
        read_file(tmp_path / "rows.csv")
