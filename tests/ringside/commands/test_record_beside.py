"""``ringside record --beside``: a recorded job beside a strategy of Ringside's own."""

import json
from pathlib import Path

import pytest

import ringside as package

TOP = Path(__file__).resolve().parents[3]
JOB = TOP / "examples/recorded.json"
MODEL = "llama3-8b:2048,layers=1"


def test_differences_are_told_one_by_one(silently):
    out = silently("record", "--beside", "ddp batch=8", "--model", MODEL, JOB)
    first, *others = out.splitlines()
    assert first == "# 1 of 1 collectives and messages are those of ddp, which has 8, in the same order"
    assert any(line.split()[:4] == ["0", "all_reduce", "0-15", "2004"] for line in others)
    assert "rank 0 parts from ddp at exchange 1" in out


def test_json_has_both_sides(silently):
    out = silently("record", "--beside", "fsdp batch=8 cluster=dgx-a100:2", "--model", MODEL, "--json", JOB)
    content = json.loads(out)["beside"]
    (rank,) = content["ranks"]
    assert (rank["alike"], rank["common"]) == (16, 0)
    assert {one["kind"] for one in rank["exchanges"]} == {"all_reduce", "all_gather", "reduce_scatter"}
    assert rank["memory_bytes"]["parameters"]["recorded"] == 64 << 20
    assert content["steps"]["step_s"]["strategy"] > content["steps"]["step_s"]["recorded"] > 0
    assert content["inputs"]["cluster"] == "dgx-a100:2"


def test_python_has_the_same_words():
    made = package.beside(JOB, MODEL, "ddp", batch=8, precision="bf16")
    (rank,) = made.ranks
    assert rank.exchanges.totals == (1, 8)
    assert rank.peaks[0] == 320 << 20


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (("--beside", "ddp"), "--beside and --model go together"),
        (("--model", "gpt2"), "--beside and --model go together"),
        (("--beside", "ddp mico_batch=4", "--model", MODEL), "write micro_batch (known: "),
        (("--beside", "ddp batch=many", "--model", MODEL), "--batch 'many'; write a whole number"),
        (("--beside", "dpp", "--model", MODEL), "unknown strategy 'dpp'"),
        (("--beside", "", "--model", MODEL), "--beside names no strategy; write for example 'fsdp batch=4'"),
        (("--beside", "ddp", "--model", JOB), "is a recorded job too; write a model"),
        (("--beside", "fsdp tp=3", "--model", MODEL), "16 ranks do not divide by --tp 3"),
        ((), "recorded.json is a job that was recorded; ask `ringside train --model"),
    ],
)
def test_what_is_no_question_is_refused_in_a_line(ringside, argv, error):
    code, out, err = ringside("record", *argv, JOB)
    assert (code, out) == (2, "")
    assert error in err
