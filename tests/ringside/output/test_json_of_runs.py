"""`--json` of `calibrate` and `measure`: one object, and nothing else on stdout."""

import json
from pathlib import Path

import pytest

from ringside.sim.record import Record, to_fields, to_line


def rows(count):
    return [
        Record(
            source="t", cluster="star", library="ideal",
            collective="all_reduce", algorithm="ring", num_nodes=1,
            ranks=4, nbytes=1024 << number, time_s=1e-4 + 1e-9 * (1024 << number), statistic="median",
        )
        for number in range(count)
    ]  # fmt: skip


def test_a_calibration_is_told_as_its_file_has_it(ringside):
    Path("rows.jsonl").write_text("".join(to_line(row) + "\n" for row in rows(8)), encoding="utf-8")
    code, out, err = ringside(*"calibrate rows.jsonl --cluster star -o fit.yaml --json".split())
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["schema"] == "ringside.calibrate/1"
    assert (found["output"], found["inputs"]["files"]) == ("fit.yaml", ["rows.jsonl"])
    (fit,) = found["fits"]
    assert (fit["library"], fit["algorithm"], fit["rows"]) == ("ideal", "ring", 8)
    assert Path("fit.yaml").exists()


def test_records_are_told_as_their_file_has_them(ringside, monkeypatch):
    made = rows(2)

    def measure(what, keep, *_):
        for row in made:
            keep(row)

    monkeypatch.setattr("ringside.real.questions.collective_measurement.measure", measure)
    code, out, _ = ringside(*"measure all_reduce -g 2 -o rows.jsonl --json".split())
    assert code == 0
    found = json.loads(out)
    assert (found["schema"], found["output"]) == ("ringside.measure/1", "rows.jsonl")
    assert found["rows"] == [to_fields(row) for row in made]


@pytest.mark.parametrize("word", ["ddp", "train", "elastic"])
def test_other_measurements_have_their_words_behind_their_name(ringside, word):
    code, _, err = ringside("measure", "-o", "x.json", word)
    assert (code, f"write ringside measure {word}" in err) == (2, True)
