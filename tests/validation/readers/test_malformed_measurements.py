import json
from pathlib import Path
from typing import Any

import pytest

from ringside.sim.record import Record, RecordError
from ringside.validation.readers import read

DATA = Path(__file__).parents[1] / "data"
PUBLISHED = Path(__file__).parents[3] / "validation" / "published" / "a100_thanos_g8_singleproc.json"

LOG = (DATA / "v2.19_per_iteration.log").read_text()
OUTPUT = json.loads((DATA / "v3.json").read_text())
RUN = json.loads(PUBLISHED.read_text())
RECORD = {
    "record": 1,
    "source": "test",
    "cluster": "x",
    "library": "gloo",
    "collective": "all_reduce",
    "num_nodes": 1,
    "ranks": 2,
    "nbytes": 8,
    "time_s": 1e-6,
    "statistic": "median",
}


def row(**fields: Any) -> str:
    return json.dumps({**RUN, "rows": [{**RUN["rows"][0], **fields}]})


def result(**fields: Any) -> str:
    return json.dumps({**OUTPUT, "results": [{**OUTPUT["results"][0], **fields}]})


def record(**fields: Any) -> str:
    return json.dumps(RECORD) + "\n" + json.dumps({**RECORD, **fields})


MALFORMED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "empty; expected text"),
    "blank": (" \n\n", "empty; expected text"),
    "elf": (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "line 1: binary"),
    "bad byte late": (LOG.encode() + b"\xff", "line 21: binary"),
    "nul": ("# nThread 1\n\0\0", "line 2: binary"),
    "utf16": (LOG.encode("utf-16"), "line 1: binary"),
    "prose": ("It took long.\n", "no table of measurements in 1 lines; expected text"),
    "no table": (LOG[: LOG.index("#       size")], "no table of measurements"),
    "no rows": (LOG[: LOG.index("     1048576")], "line 13: no row below"),
    "cut before the type": (LOG[: LOG.index("double     sum") - 1], "line 15: a row of 2 columns"),
    "cut in a half": (LOG[: LOG.index("26.09")], "line 15: a row of 15 columns, truncated"),
    "cut row among whole ones": (LOG.replace(" 0    29.14    39.14", ""), "line 15: a row of 20 columns"),
    "row too long": (
        LOG.replace("38.14     3.20", "38.14     3.20  7"),
        "line 15: a row of 24 columns.*expected 23",
    ),
    "no ranks": (
        LOG.replace("Rank", "Rang").replace("reduce_scatter_perf", "broadcast_perf"),
        "line 13: no ranks are listed above, and its bandwidths fit no number of ranks of broadcast",
    ),
    "ranks that no bandwidth fits": (
        LOG.replace("Rank", "Rang").replace("reduce_scatter_perf", "all_reduce_perf"),
        "its bandwidths fit no number of ranks of all_reduce",
    ),
    "another profiler": (
        '{"type":"ProfilerLifecycle"}\n{"recordType":"event"}\n',
        "another profiler's events",
    ),
    "ranks twice": (LOG.replace("Rank  1", "Rank  0"), "a rank is listed twice"),
    "unknown collective": (
        LOG.replace("reduce_scatter_perf", "hypercube_perf"),
        "line 13: unknown collective 'hypercube_perf'",
    ),
    "unknown program": (LOG.replace("reduce_scatter_perf", "rush"), "unknown collective 'rush'"),
    "zero time": (LOG.replace("30.55", " 0.00"), "line 15: a time of 0 s; expected one above 0"),
    "negative time": (LOG.replace("30.55", "-1.00"), "line 15: a time of -1e-06 s"),
    "time of words": (LOG.replace("30.55", "fast!"), "line 15: 'fast!' under time; expected a number or N/A"),
    "negative size": (LOG.replace("     1048576", "    -1048576"), "line 15: -1048576 bytes"),
    "huge size": (LOG.replace("1048576", "9" * 30), "line 15: more than 10.20 bytes"),
    "endless size": (LOG.replace("1048576", "9" * 9999), "line 15: a size of too many digits"),
    "cpu time": (LOG.replace("   time ", "cputime "), "line 13: the table holds cputime"),
    "no usable time": (
        LOG.replace("30.55", "N/A").replace("30.14", "nan")[: LOG.index("     2097")],
        "1 rows",
    ),
    "json list": ("[1, 2]", "no table"),
    "json cut": (json.dumps(OUTPUT)[:700], "line 1, column 70[01]: broken or cut off JSON"),
    "json of other things": ('{"a": 1}', "neither 'results' nor 'rows'"),
    "json nested": ('{"a":' * 100_000, "nested too deep"),
    "json huge number": ('{"rows": ' + "9" * 5000 + "}", "number out of range"),
    "results of no list": (json.dumps({**OUTPUT, "results": 7}), "results: Input should be a valid list"),
    "results without config": (json.dumps({**OUTPUT, "config": None}), "config: Input should be"),
    "results without ranks": (json.dumps({**OUTPUT, "config": {"devices": []}}), "no ranks are listed"),
    "results empty": (json.dumps({**OUTPUT, "results": []}), "none of its 0 rows"),
    "result program": (json.dumps({**OUTPUT, "args": ["rush"]}), "unknown collective 'rush'"),
    "result size": (result(size="many"), "results.0.size: Input should be a valid integer, not 'many'"),
    "result huge size": (result(size=10**400), "results.0: more than 10.20 bytes"),
    "result time": (result(out_of_place={"time": "soon"}), "results.0.out_of_place.time: Input should be"),
    "result zero time": (result(out_of_place={"time": 0.0}), "results.0: a time of 0 s"),
    "result cpu time": (result(out_of_place={"cpu_time": 3.0}), "results.0: cpu_time is the CPU's time"),
    "published cut": (PUBLISHED.read_text()[:-9], "line 2.., column .*: broken or cut off"),
    "published no rows": (json.dumps({**RUN, "rows": []}), "none of its 0 rows"),
    "published cluster": (json.dumps({**RUN, "cluster": None}), "cluster: Input should be a valid string"),
    "published collective": (json.dumps({**RUN, "collective": "rush"}), "unknown collective 'rush'"),
    "published time": (row(time_us=-4.0), "rows.0: a time of -4e-06 s"),
    "published huge time": (row(time_us=10**400), "rows.0.time_us: "),
    "published ranks": (row(n_ranks=True), "rows.0.n_ranks: Input should be a valid integer"),
    "published nodes": (row(n_nodes=9), "rows.0: 9 nodes; expected 0 to the ranks"),
    "published nothing": (row(time_us=None, in_place_time_us=float("nan")), "none of its 1 rows"),
    "record cut": (record()[:-9], "line 2: not a record"),
    "record version": (record(record=7), "line 2: record version 7"),
    "record type": (record(ranks="two"), "line 2: ranks: "),
    "record collective": (record(collective="rush"), "line 2: 'rush' is not a collective; expected one of"),
    "record zero time": (record(time_s=0), "line 2: a time of 0 s"),
    "record no number": (record(time_s=float("nan")), "line 2: a time of nan s"),
    "record spread": (record(p95_s=-1), "line 2: iterations of"),
    "record nested": (json.dumps(RECORD) + "\n" + "[" * 100_000, "line 2: JSON nested too deeply"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_cannot_be_measurements_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    content, complaint = MALFORMED[name]
    path = tmp_path / "measured"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RecordError, match=complaint) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("path", ["missing.log", ".", "a\0b"])
def test_a_path_that_is_no_file_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"no such file|cannot be read"):
        read(tmp_path / path)


@pytest.mark.parametrize("name", [p.name for p in sorted(DATA.iterdir()) if p.is_file()])
def test_a_file_cut_anywhere_is_read_in_part_or_refused_but_never_misread(name: str, tmp_path: Path) -> None:
    text = (DATA / name).read_text()
    whole = read(DATA / name).records
    path = tmp_path / name
    for end in range(0, len(text), 7):
        path.write_text(text[:end])
        try:
            records: tuple[Record, ...] = read(path).records
        except RecordError:
            continue
        assert records == whole[: len(records)]
