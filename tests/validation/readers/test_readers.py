import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION
from ringside.sim.record import RecordError, write
from ringside.validation.published import published
from ringside.validation.readers import Reading, read
from ringside.validation.rows import rows

DATA = Path(__file__).parents[1] / "data"
PUBLISHED = sorted((Path(__file__).parents[3] / "validation" / "published").glob("*.json"))


def times_us(reading: Reading) -> list[tuple[int, float]]:
    return [(record.nbytes, round(record.time_s * 1e6, 4)) for record in reading.records]


def changed(tmp_path: Path, name: str, change: Callable[[str], str]) -> Path:
    path = tmp_path / name
    path.write_text(change((DATA / name).read_text()))
    return path


def test_release_2_0_has_no_name_no_root_and_no_group() -> None:
    reading = read(DATA / "v2.0_all_reduce.log")
    assert times_us(reading) == [(8, 21.37), (65536, 34.11), (33554432, 447.3)]
    record = reading.records[-1]
    assert (record.collective, record.ranks, record.num_nodes) == ("all_reduce", 4, 1)
    assert (record.dtype, record.redop, record.library_version) == ("float32", "sum", "")
    assert record.cluster == record.fingerprint["gpu"] == "Tesla V100-SXM2-16GB"
    assert record.statistic == "mean over iterations (nccl-tests)"
    assert record.iterations == 20


def test_old_algbw_with_the_factor_in_it_is_derived_anew_from_the_time() -> None:
    reading = read(DATA / "v2.0_all_gather.log")
    assert (reading.skipped, times_us(reading)) == (1, [(64, 19.27), (33554432, 245.5)])
    record = reading.records[-1]
    assert (record.collective, record.redop) == ("all_gather", "")
    assert record.algbw / 1e9 == pytest.approx(136.68, abs=0.01)
    assert record.busbw / 1e9 == pytest.approx(102.51, abs=0.01)


def test_release_2_13_under_mpirun_on_two_nodes() -> None:
    reading = read(DATA / "v2.13_two_nodes.log")
    record = reading.records[0]
    assert (record.num_nodes, record.ranks, record.dtype) == (2, 4, "float16")
    assert (record.library_version, record.iterations) == ("2.16.2", 100)
    assert len(reading.records) == 4


def test_messages_of_nccl_between_and_within_rows_are_taken_out() -> None:
    reading = read(DATA / "v2.19_nccl_debug.log")
    assert times_us(reading) == [(1048576, 36.22), (2097152, 2291.8), (4294967296, 32e6)]
    record = reading.records[0]
    assert (record.algorithm, record.protocol, record.library_version) == ("nvls_tree", "simple", "2.30.7")


def test_per_iteration_columns_and_timestamps() -> None:
    reading = read(DATA / "v2.19_per_iteration.log")
    record = reading.records[0]
    assert times_us(reading) == [(1048576, 30.55), (2097152, 41.82)]
    assert (round(record.min_s * 1e6, 2), round(record.max_s * 1e6, 2), record.p95_s) == (29.55, 39.55, 0)
    assert (record.date, record.iterations) == ("2026-10-30T14:50:17", 50)


def test_runs_of_one_job_keep_apart_and_a_shells_exports_last() -> None:
    records = read(DATA / "several_runs.log").records
    assert [(r.collective, r.algorithm, r.protocol) for r in records] == [
        ("all_gather", "ring", "ll128"),
        ("broadcast", "auto", "ll128"),
        ("all_to_all", "auto", "ll128"),
        ("sendrecv", "auto", "auto"),
    ]


def test_files_joined_by_cat_are_as_many_runs(written: Any) -> None:
    names = ("v2.0_all_reduce.log", "v2.0_all_gather.log", "v2.19_per_iteration.log")
    joined = written("".join((DATA / name).read_text() for name in names), "all.log")
    apart = [read(DATA / name) for name in names]
    assert times_us(read(joined)) == [row for reading in apart for row in times_us(reading)]
    assert read(joined).skipped == 1


def test_json_of_nccl_tests_and_the_environment_that_is_dropped() -> None:
    reading = read(DATA / "v3.json")
    assert times_us(reading) == [(1048576, 36.22), (2097152, 50.5), (4194304, 70.5)]
    assert [record.in_place for record in reading.records] == [False, True, True]
    assert reading.skipped == 1
    record = reading.records[0]
    assert (record.num_nodes, record.ranks, record.library_version) == (2, 8, "2.26.2")
    assert (record.algorithm, record.protocol, record.redop) == ("tree", "auto", "sum")
    assert (round(record.min_s * 1e6, 2), round(record.p95_s * 1e6, 2)) == (35.5, 41.5)
    assert "hunter2" not in repr(reading)


@pytest.mark.parametrize("name", ["v2.19_per_iteration.log", "v3.json", "records.jsonl"])
def test_the_name_of_a_file_does_not_matter(name: str, tmp_path: Path) -> None:
    source = DATA / name
    if name == "records.jsonl":
        source = tmp_path / name
        write(read(DATA / "v3.json").records, source)
    copy = tmp_path / "measured.dat"
    shutil.copy(source, copy)
    assert times_us(read(copy)) == times_us(read(source))


def test_our_own_records_come_back_as_they_went(tmp_path: Path) -> None:
    records = read(DATA / "v3.json").records
    write(records, tmp_path / "records.jsonl")
    assert read(tmp_path / "records.jsonl") == Reading(records)


@pytest.mark.parametrize(
    ("redop", "root", "factor", "in_place_wrong", "kind"),
    [
        ("sum", -1, 1.0, "0", "all_reduce"),
        ("sum", -1, 1.0, "N/A", "sendrecv"),
        ("sum", -1, 0.5, "0", "reduce_scatter"),
        ("sum", 0, 1.0, "0", "reduce"),
        ("none", 0, 1.0, "0", "broadcast"),
        ("none", -1, 0.5, "0", "all_gather"),
        ("none", -1, 0.5, "N/A", "all_to_all"),
    ],
)
def test_an_unnamed_table_of_two_ranks_tells_its_collective(
    redop: str, root: int, factor: float, in_place_wrong: str, kind: str, written: Any
) -> None:
    path = written(two_ranks(redop, root, factor, "0", in_place_wrong), "log")
    assert read(path).records[0].collective == kind


def test_an_unnamed_unchecked_table_is_decided_by_the_files_name_or_refused(tmp_path: Path) -> None:
    text = two_ranks("none", -1, 0.5, "N/A", "N/A")
    (tmp_path / "nccl_alltoall.log").write_text(text)
    (tmp_path / "log").write_text(text)
    assert read(tmp_path / "nccl_alltoall.log").records[0].collective == "all_to_all"
    with pytest.raises(RecordError, match="fits all_gather and all_to_all; expected a line"):
        read(tmp_path / "log")


def two_ranks(redop: str, root: int, factor: float, wrong: str, in_place_wrong: str) -> str:
    ranks = "".join(f"#  Rank {r} Group  0 Pid 1 on box device {r} [0x0{r}] L40\n" for r in range(2))
    columns = "#  size  count  type  redop  root" + "  time  algbw  busbw  #wrong" * 2
    half = f"  100.0  10.49  {10.48576 * factor:.2f}"
    return f"{ranks}{columns}\n 1048576 262144 float {redop} {root} {half} {wrong} {half} {in_place_wrong}\n"


def test_a_blank_half_out_of_place_leaves_the_one_in_place(tmp_path: Path) -> None:
    text = two_ranks("sum", -1, 1.0, "0", "0").rsplit("\n", 2)[0]
    row = f"     1048576        262144     float     sum      -1{'':32}  100.0  10.49  10.49       0\n"
    (tmp_path / "log").write_text(f"# Collective test starting: all_reduce_perf\n{text}\n{row}")
    record = read(tmp_path / "log").records[0]
    assert (record.in_place, record.time_s) == (True, pytest.approx(100e-6))


def test_a_split_run_counts_the_ranks_of_one_communicator(tmp_path: Path) -> None:
    path = changed(
        tmp_path, "v2.13_two_nodes.log", lambda t: t.replace("Rank  2 Group  0", "Rank  2 Group  1")
    )
    path.write_text(
        "# Collective test starting: all_reduce_perf\n"
        + path.read_text().replace("Rank  3 Group  0", "Rank  3 Group  1")
    )
    assert {(r.ranks, r.num_nodes) for r in read(path).records} == {(2, 1)}


def test_devices_that_a_long_list_left_out_are_counted(tmp_path: Path) -> None:
    path = changed(
        tmp_path,
        "v2.0_all_reduce.log",
        lambda t: "".join(s for s in t.splitlines(True) if "Rank  3" not in s),
    )
    assert {record.ranks for record in read(path).records} == {4}


def test_a_log_that_ends_between_rows_counts_with_the_rows_it_has(tmp_path: Path) -> None:
    path = changed(tmp_path, "v2.19_per_iteration.log", lambda t: t[: t.index("     2097152")])
    assert times_us(read(path)) == [(1048576, 30.55)]


def taken(time_us: float | None, in_place_us: float | None) -> tuple[float | None, bool]:
    """Return the time out of place, or in place if that is missing or disturbed."""
    held_up = time_us is None or (in_place_us is not None and time_us > 2 * in_place_us)
    return (in_place_us, True) if held_up else (time_us, False)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_every_published_row_comes_through(path: Path) -> None:
    content = json.loads(path.read_text())
    reading = read(path)
    took = [taken(row["time_us"], row["in_place_time_us"]) for row in content["rows"]]
    expected = [
        (row["n_nodes"], row["n_ranks"], row["size_bytes"], time_us)
        for row, (time_us, _) in zip(content["rows"], took, strict=True)
    ]
    assert reading.skipped == 0
    assert [(r.num_nodes, r.ranks, r.nbytes) for r in reading.records] == [row[:3] for row in expected]
    assert [r.time_s * 1e6 for r in reading.records] == pytest.approx([row[3] for row in expected])
    assert [r.in_place for r in reading.records] == [in_place for _, in_place in took]
    keys = ("cluster", "site", "source", "collective", "algorithm", "protocol", "statistic")
    assert {tuple(getattr(r, key) for key in keys) for r in reading.records} == {
        tuple(content[key] for key in keys)
    }


def test_all_published_rows_together() -> None:
    records = published()
    assert (len(PUBLISHED), len(records)) == (173, 3312)
    assert Counter(record.dtype for record in records) == {
        "float32": 1397,
        "float16": 1680,
        "float64": 150,
        "": 85,
    }
    assert {record.library_version for record in records} >= {"2.8.4", "2.26.2", "2.29.2", ""}


@pytest.mark.parametrize(
    ("version", "release"),
    [("2.21.5", "2.21.5"), ("2.3", "2.3"), ("", DEFAULT_VERSION), ("unknown", DEFAULT_VERSION)],
)
def test_a_record_is_predicted_with_the_release_that_ran(version: str, release: str) -> None:
    measured = next(record for record in published() if record.cluster == "dgx-h100")
    (row,) = rows([replace(measured, library_version=version)], "dgx-h100", {})
    assert isinstance(row.library, Nccl)
    assert row.library.comm
    assert row.library.comm.settings.version == release
