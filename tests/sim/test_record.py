import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.record import Record, RecordError, from_line, read_lines, to_line, write
from ringside.topologies.disk import OutputError
from tests.made_up import record

OTHERS = {
    "site": "here",
    "library_version": "2.13.0",
    "backend": "gloo",
    "redop": "sum",
    "date": "2026-11-21",
}
TIMES = {"time_s": 1e-3, "min_s": 0.9e-3, "max_s": 1.4e-3, "p95_s": 1.2e-3, "iterations": 20}
QUOTED = {"cpu": "Ω", "GLOO_DEVICE": 'a "quoted"\nvalue'}
RECORD = record(nbytes=1 << 20, fingerprint=QUOTED, **OTHERS, **TIMES)


def test_bandwidths_and_spread_are_what_their_names_say() -> None:
    assert RECORD.algbw == pytest.approx((1 << 20) / 1e-3)
    assert RECORD.busbw == pytest.approx(RECORD.algbw * 1.5)
    assert RECORD.spread == pytest.approx(0.15)
    assert replace(RECORD, p95_s=0.0).spread == 0


def test_a_line_is_json_that_others_can_read() -> None:
    line = to_line(RECORD)
    content = json.loads(line)
    assert "\n" not in line
    assert content["record"] == 1
    assert content["algbw_GBps"] == pytest.approx(1.048576)
    assert content["busbw_GBps"] == pytest.approx(1.572864)
    assert {**content, **asdict(RECORD)} == content


@given(
    time_s=st.floats(1e-9, 1e6),
    nbytes=st.integers(0, 1 << 50),
    text=st.text(),
    fingerprint=st.dictionaries(st.text(), st.text(), max_size=4),
    kind=st.sampled_from(["all_reduce", "all_to_all", "sendrecv"]),
)
def test_any_record_survives_its_line(
    time_s: float, nbytes: int, text: str, fingerprint: dict[str, str], kind: str
) -> None:
    one = replace(RECORD, time_s=time_s, nbytes=nbytes, site=text, collective=kind, fingerprint=fingerprint)
    assert from_line(to_line(one), "here") == one
    assert read_lines(f"{to_line(one)}\n\n{to_line(RECORD)}\n", "here") == [one, RECORD]


def test_a_simulated_record_of_one_rank_that_takes_no_time_has_a_line() -> None:
    nothing = replace(RECORD, ranks=1, time_s=0.0, min_s=0.0, max_s=0.0, p95_s=0.0)
    assert from_line(to_line(nothing), "here") == nothing


def test_records_survive_a_file_and_files_can_be_joined(tmp_path: Path) -> None:
    many = [replace(RECORD, nbytes=size) for size in (1, 2, 3)]
    write(many, tmp_path / "a.jsonl")
    write([RECORD], tmp_path / "b.jsonl")
    joined = (tmp_path / "a.jsonl").read_text() + (tmp_path / "b.jsonl").read_text()
    assert read_lines(joined, "joined") == [*many, RECORD]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]


LINE = json.loads(to_line(RECORD))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "not a record"),
        ("{", "not a record"),
        ("[]", "not a record"),
        ("3", "not a record"),
        ("null", "not a record"),
        ('"text"', "not a record"),
        ("{}", "not a record"),
        ('{"ranks": 4}', "not a record"),
        (json.dumps({**LINE, "record": 2}), "version 2; this Ringside reads version 1"),
        (json.dumps({"record": 1}), "source: .*cluster: .*time_s: "),
        (json.dumps({**LINE, "ranks": "four"}), "ranks: "),
        (json.dumps({**LINE, "time_s": None}), "time_s: "),
        (json.dumps({**LINE, "fingerprint": []}), "fingerprint: "),
    ],
)
def test_what_is_no_record_is_refused_with_its_place(line: str, message: str) -> None:
    with pytest.raises(RecordError, match=rf"^runs.jsonl, line 7: .*{message}"):
        from_line(line, "runs.jsonl, line 7")


def test_a_bad_line_is_named_by_its_number() -> None:
    with pytest.raises(RecordError, match="runs, line 3"):
        read_lines(f"{to_line(RECORD)}\n\nnonsense\n", "runs")


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    write([RECORD], path)
    before = path.read_text()

    def failing() -> Iterator[Record]:
        yield RECORD
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write(failing(), path)
    assert path.read_text() == before
    assert os.listdir(tmp_path) == ["runs.jsonl"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "no" / "folder.jsonl", tmp_path / "file" / "under.jsonl", tmp_path):
        with pytest.raises(OutputError, match="cannot be written"):
            write([RECORD], path)
    assert os.listdir(tmp_path) == ["file"]
