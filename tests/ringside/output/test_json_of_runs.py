"""`--json` of `calibrate` and `measure`: one object, and nothing else on stdout."""

import json
from pathlib import Path

import pytest

from ringside.sim.record import to_fields, to_line
from tests.made_up import record


def rows(count):
    sizes = [1024 << number for number in range(count)]
    return [record(cluster="star", nbytes=nbytes, time_s=1e-4 + 1e-9 * nbytes) for nbytes in sizes]


def test_a_calibration_is_told_as_its_file_has_it(silently):
    Path("rows.jsonl").write_text("".join(to_line(row) + "\n" for row in rows(8)), encoding="utf-8")
    answer = json.loads(silently("calibrate rows.jsonl --cluster star -o fit.yaml --json"))
    assert answer["schema"] == "ringside.calibrate/1"
    assert (answer["output"], answer["inputs"]["files"]) == ("fit.yaml", ["rows.jsonl"])
    (fit,) = answer["fits"]
    assert (fit["library"], fit["algorithm"], fit["rows"]) == ("ideal", "ring", 8)
    assert Path("fit.yaml").exists()


def test_records_are_told_as_their_file_has_them(json_of, monkeypatch):
    made = rows(2)

    def measure(what, keep, *_):
        for row in made:
            keep(row)

    monkeypatch.setattr("ringside.real.questions.collective_measurement.measure", measure)
    answer = json_of("measure all_reduce -g 2 -o rows.jsonl")
    assert (answer["schema"], answer["output"]) == ("ringside.measure/1", "rows.jsonl")
    assert answer["rows"] == [to_fields(row) for row in made]


@pytest.mark.parametrize("word", ["ddp", "train", "compute", "elastic"])
def test_other_measurements_have_their_words_behind_their_name(refused, word):
    assert f"write ringside measure {word}" in refused("measure", "-o", "x.json", word)
