"""``ringside scorecard training``: its table, JSON and picture."""

import re
from pathlib import Path

import pytest

ASKED = ("scorecard", "training", "--table", "korthikanti")
PAGE = (Path(__file__).parents[3] / "docs/published_training.md").read_text(encoding="utf-8")


def test_a_table_is_summed_up_with_its_worst_rows(on_screen):
    code, out, _ = on_screen(*ASKED)
    assert code == 0
    lines = out.splitlines()
    assert out.startswith("# median error ")
    (row,) = [line.split() for line in lines if not line.startswith("#")]
    assert row[:4] == ["korthikanti", "all", "4", "4"]
    assert len(row) == 10
    (shown,) = re.findall(r"\$ ringside (.*)\n([^`]*)```", PAGE)
    assert shown[0].split() == [*ASKED]
    assert [line.rstrip() for line in lines] == shown[1].splitlines()


def test_json_has_every_row_and_where_it_is_from_and_the_picture_is_drawn(json_of):
    content = json_of("scorecard training --table data_parallel --plot training.svg")
    assert content["schema"] == "ringside.scorecard_training/1"
    (table,) = content["tables"]
    assert table["source"].startswith("huggingface/transformers, docs @")
    assert {row["series"] for row in table["rows"]} == {"2 TITAN RTX, GPT-2", "V100, mpnet-base"}
    for row in table["rows"]:
        assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)
    (score,) = table["scores"]
    assert score["worst"] == pytest.approx(max(abs(row["error"]) for row in table["rows"]))
    (counted,) = table["counted"]
    assert (counted["right"], counted["of"]) == (5, 6)
    assert Path("training.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_what_the_naive_rule_does_not_say_is_null(ringside, json_of, monkeypatch):
    from ringside.validation.scorecard import judged, training

    one = judged.JudgedTable(
        *("two", "Two rows", "nobody", "nothing", "none"),
        judged=lambda: [judged.JudgedRow("a", "1", 2.0, 2.2, float("nan"))],
        counted=lambda: [judged.Counted("which is larger", 1, 2, 0)],
    )
    monkeypatch.setattr(training, "training_tables", lambda names, absolute: [one])
    _, out, _ = ringside("scorecard", "training")
    (row,) = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert row[-2:] == ["-", "-"]
    assert out.splitlines()[-1] == "# two: which is larger: 1 of 2, naive 0"
    (table,) = json_of("scorecard", "training")["tables"]
    assert table["rows"][0]["rule"] is table["scores"][0]["rule_median"] is None
    assert table["counted"][0]["by_rule"] == 0


def test_exchanges_of_experts_are_scored_by_library_and_phase(ringside, json_of, monkeypatch):
    from ringside.validation.scorecard import experts, judged

    rows = [
        judged.JudgedRow("a", "1", 2.0, 2.2, 1.0, part="deepep dispatch", low=1.0, high=3.0),
        judged.JudgedRow("a", "2", 2.0, 1.0, float("nan"), part="deepep prepare", low=0.9, high=1.1),
    ]
    one = judged.JudgedTable(
        *("another GPU", "Exchanges", "made up", "all others", "links alone"),
        judged=lambda: rows, counted=lambda: [judged.Counted("winners named", 3, 4)],
    )  # fmt: skip
    monkeypatch.setattr(experts, "expert_tables", lambda: [one])
    _, out, _ = ringside("scorecard", "experts", "--all")
    shown = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert shown == [
        ["another", "GPU", "all", "2", "30.0", "46.0", "-20.0", "50.0", "50.0"],
        ["another", "GPU", "deepep", "dispatch", "1", "10.0", "10.0", "10.0", "100.0", "50.0"],
        ["another", "GPU", "deepep", "prepare", "1", "50.0", "50.0", "-50.0", "0.0", "-"],
    ]
    assert "# another GPU: fitted to all others" in out
    assert "# another GPU: winners named: 3 of 4" in out
    content = json_of("scorecard", "experts")
    assert content["schema"] == "ringside.scorecard_experts/1"
    assert [row["part"] for row in content["tables"][0]["rows"]] == [row.part for row in rows]


def test_a_table_of_answers_alone_has_no_rows(json_of, printed, monkeypatch):
    from ringside.validation.scorecard import judged, training

    one = judged.JudgedTable(
        *("order", "Three frameworks", "nobody", "nothing", "none", list),
        counted=lambda: [judged.Counted("their order", 2, 3)],
        correlated=lambda: [judged.Correlated("times", 0.5), judged.Correlated("sizes", 1.0, 0.25)],
    )
    monkeypatch.setattr(training, "training_tables", lambda names, absolute: [one])
    out = printed("scorecard", "training", "--plot", "order.svg")
    assert [line for line in out.splitlines() if not line.startswith("#")] == []
    assert "worst of order" not in out
    assert out.splitlines()[-3:] == [
        "# order: their order: 2 of 3",
        "# order: Spearman's correlation of times: 0.500",
        "# order: Spearman's correlation of sizes: 1.000, naive 0.250",
    ]
    (table,) = json_of("scorecard", "training")["tables"]
    assert [one["spearman"] for one in table["correlated"]] == [0.5, 1.0]


def test_steps_are_judged_with_nothing_known(on_screen, json_of):
    asked = ("scorecard", "training", "--absolute", "--table", "korthikanti")
    code, out, _ = on_screen(*asked)
    assert code == 0
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows] == ["all", "gpu", "gpu", "stack", "precision", "source", "all"]
    assert rows[1][:6] == ["gpu", "stack", "precision", "a100", "megatron", "fp16"]
    assert rows[3][:4] == ["stack", "megatron", "1", "8"]
    content = json_of(*asked)
    assert content["schema"] == "ringside.scorecard_absolute/1"
    assert len(content["rows"]) == 8
    for row in content["rows"]:
        assert row["low"] < row["predicted"] < row["high"]
        assert (row["gpu"], row["stack"], row["precision"]) == ("a100", "megatron", "fp16")
    assert content["scores"][0]["rows"] == 8
    assert set(content["factors"]) == {"others"}


def test_only_training_is_judged_with_nothing_known(ringside):
    code, _, err = ringside("scorecard", "--absolute")
    assert code == 2
    assert "--absolute needs training" in err


def test_peaks_of_memory_are_judged(printed, json_of, monkeypatch):
    from ringside.validation.scorecard import judged, memory

    rows = [
        judged.JudgedRow("gpt/a", "dev", 100.0, predicted, traits=dict.fromkeys(memory.GROUPS, "x"))
        for predicted in (90.0, 101.0)
    ]
    scored = memory.MemoryScores([memory.scored("megatron", "", rows)], rows, 4, 1, {"no": 3}, {"--a": 1})
    monkeypatch.setattr(memory, "memory_scores", lambda done: scored)
    lines = printed("scorecard", "memory").splitlines()
    assert lines[0] == "# median error 5.5% over 2 rows of megatron"
    assert any(line.startswith("# 1 of 4 functional tests of Megatron-LM") for line in lines)
    (row,) = [line.split() for line in lines if not line.startswith("#")]
    assert row == ["megatron", "1", "2", "5.5", "9.1", "10.0", "-4.5", "50.0"]
    assert lines[-4:] == [
        "# worst: gpt/a dev -10.0%", "# worst: gpt/a dev +1.0%", "# not judged, 3: no",
        "# judged and not modelled, 1: --a",
    ]  # fmt: skip
    content = json_of("scorecard", "memory")
    assert content["schema"] == "ringside.scorecard_memory/1"
    assert (content["cases"], content["judged"], content["refused"]) == (4, 1, {"no": 3})
    assert content["scores"][0]["too_low"] == 0.5
    assert content["rows"][0]["error"] == pytest.approx(-0.1)
