"""What a training costs: every figure of the page, on every road, and amounts that cannot be counted."""

import math
import re
from pathlib import Path

import pytest

import ringside as package
from ringside.sim.goodput.cost import Cost
from ringside.topologies.units import format_amount, parse_amount
from tests.ringside.wrapping import unwrapped

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/cost.md").read_text(encoding="utf-8")
STEP = "train --model gpt2 --cluster dgx-h100:1 --strategy fsdp --batch 8 --micro-batch 2"
SEARCH = (
    "train --model gpt2:256 --cluster dgx-h100:2 --search --strategy fsdp --global-batch 64 "
    "--checkpointing none --fixed tp --fixed pp --micro-batch 2"
)
RECORDED = f"train --model {ROOT}/examples/recorded.json --cluster dgx-h100:8 -g 64"


def test_every_figure_of_the_page_is_what_its_formula_gives():
    sums = re.findall(r"`([\d.e+*/ -]+) = ([\d.,]+)`", PAGE)
    assert len(sums) == 10
    for formula, figure in sums:
        value = float(figure.replace(",", ""))
        assert math.ceil(eval(formula)) == value or eval(formula) == pytest.approx(value, rel=5e-4), formula


def test_the_page_shows_the_figures_that_it_derives(json_of):
    cost = json_of(f"{STEP} --tokens 300B --price 2.5")["cost"]
    assert cost["steps"] == 4_577_637
    assert [cost[key] for key in ("days", "gpu_hours", "dollars")] == pytest.approx(
        [3.503, 672.6, 1681], rel=1e-3
    )
    assert "300B tokens: 4,577,637 steps, 3.503 days, 672.6 GPU-hours, $1,681 at $2.5 a" in unwrapped(PAGE)


def assert_adds_up(cost, step_s, each, amount):
    assert cost["steps"] == math.ceil(amount / each)
    assert cost["days"] == pytest.approx(cost["steps"] * step_s / 86_400)
    assert cost["gpu_hours"] == pytest.approx(cost["days"] * 24 * cost["gpus"])


@pytest.mark.parametrize(
    ("line", "a_sample", "amount"),
    [
        (f"{STEP} --tokens 1T --price 3", 1024, 1e12),
        ("train --model gpt2 --cluster dgx-h100:2 --tokens 1T --accumulation 2", 1024, 1e12),
        ("train --model resnet50 --cluster star:4 --samples 1.2B", 1, 1.2e9),
        (f"{RECORDED} --samples 1B --price 2", 1, 1e9),
    ],
)
def test_a_cost_is_that_of_its_steps(json_of, line, a_sample, amount):
    answer = json_of(line)
    assert answer["cost"]["gpus"] == answer["ranks"]
    assert_adds_up(answer["cost"], answer["step_s"], answer["samples"] * a_sample, amount)
    price = answer["inputs"]["price"]
    assert answer["cost"]["dollars"] == (price and pytest.approx(answer["cost"]["gpu_hours"] * price))


def test_a_sweep_has_a_cost_for_each_row(json_of, printed):
    line = "train --model resnet50 --cluster dgx-h100 --samples 1B --sweep nodes=1,2"
    for row in json_of(line)["rows"]:
        assert_adds_up(row["cost"], row["step_s"], row["samples"], 1e9)
    assert "nodes 2: 1B samples: " in printed(line)


def test_a_search_by_cost_ranks_every_number_of_nodes(json_of):
    answer = json_of(f"{SEARCH} --by cost --tokens 1T --price 2 --top 1")
    every = json_of(f"{SEARCH} --by cost --tokens 1T --price 2 --top 9")["rows"]
    assert {row["cost"]["gpus"] for row in every} == {8, 16}
    dollars = [row["cost"]["dollars"] for row in every]
    assert dollars == sorted(dollars)
    (best,) = answer["rows"]
    assert best["cost"] == every[0]["cost"]
    assert best["options"].startswith("--cluster dgx-h100:")
    assert {one["kind"] for one in answer["pruned"]} >= {"dearer"}
    for row in every:
        assert_adds_up(row["cost"], row["step_s"], 64 * 256, 1e12)
    named = best["options"].split()
    alone = json_of(f"train --model gpt2:256 {' '.join(named)}")
    assert alone["step_s"] == pytest.approx(best["step_s"])


def test_a_search_by_time_has_costs_too(json_of, printed):
    rows = json_of(f"{SEARCH} --tokens 1T --top 2")["rows"]
    assert [row["cost"]["gpus"] for row in rows] == [16] * len(rows)
    assert "1T tokens: " in printed(f"{SEARCH} --tokens 1T --top 2")


def test_goodput_makes_days_longer(json_of):
    answer = json_of("goodput --nodes 4 --spares 1 --mtbf 5h --checkpoint 30s --trials 10 --price 2 "
                     "--tokens 1T --step 2s --step-tokens 1M")  # fmt: skip
    (row,) = answer["rows"]
    assert answer["work_s"] == 2e6
    assert row["cost"]["steps"] == 1_000_000
    assert row["cost"]["gpus"] == 5 * 8
    assert row["cost"]["days"] == pytest.approx(answer["work_s"] / row["simulated"] / 86_400)
    assert row["cost"]["dollars"] == pytest.approx(row["cost"]["gpu_hours"] * 2)


def test_python_says_the_same(json_of):
    question = package.StepTime(
        model="gpt2", cluster="dgx-h100:1", strategy="fsdp", batch=8, micro_batch=2, tokens="300B", price=2.5
    )
    assert question.ask().totals["cost"] == json_of(f"{STEP} --tokens 300B --price 2.5")["cost"]
    (cost,) = package.JobGoodput(nodes=8, mtbf="5h", checkpoint=30.0, trials=10, price=2.0).ask().costs
    assert isinstance(cost, Cost)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{STEP} --price 2", "--price needs an amount to train on; write --tokens 15T"),
        (f"{STEP} --tokens 1T --samples 1B", "--tokens and --samples both say how much"),
        (f"{STEP} --tokens 1X", "'1X' is not an amount; write for example 15T, 300B or 1e12"),
        (f"{STEP} --tokens 0", "--tokens 0.0; write 1 or more"),
        (f"{STEP} --tokens -3T", "is negative; write for example 15T"),
        (f"{STEP} --samples 1e19", "--samples 1e+19; write 1e+18 or less"),
        (f"{STEP} --tokens 1T --price 0", "--price 0.0; write 0.001 or more"),
        (
            f"{STEP} --tokens 1T --price much",
            "'much' is not a price; write dollars per GPU-hour, such as 2.5",
        ),
        (f"{STEP} --tokens 1T --price nan", "--price nan; write 0.001 or more"),
        (f"{STEP} --tokens 1T --by cost", "--by is of --search; add it, or leave it out"),
        (
            "train --model resnet50 --cluster star:4 --tokens 1T",
            "samples of resnet50 have no known number of",
        ),
        (f"{RECORDED} --tokens 1T", "have no known number of tokens; write --samples"),
        (f"{SEARCH} --by cost", "--by cost needs an amount to train on; write --tokens 15T"),
        (f"{SEARCH} --by money", "--by 'money'; write time or cost"),
        (f"{SEARCH} --by cost --tokens 1T -g 8", "--by cost searches numbers of nodes; leave"),
        ("goodput llama3-405b --tokens 1T", "--tokens needs the time of a step"),
        ("goodput llama3-405b --step-tokens 1M", "--step-tokens needs all tokens; write --tokens 15T"),
        ("goodput llama3-405b --tokens 1T --step 1s --step-tokens 1M --work 3d", "--tokens and --work both"),
        ("goodput llama3-405b --price -1", "--price -1.0; write 0.001 or more"),
    ],
)
def test_amounts_that_cannot_be_counted_are_refused(refused, line, message):
    assert message in refused(line)


def test_a_recorded_step_of_unknown_samples_is_refused(refused, tmp_path):
    text = (ROOT / "examples/recorded.json").read_text(encoding="utf-8")
    (tmp_path / "job.json").write_text(re.sub(r'"samples": ?\d+', '"samples":null', text), encoding="utf-8")
    line = f"train --model {tmp_path}/job.json --cluster dgx-h100:8 --samples 1B"
    assert "are unknown; record it again with --samples" in refused(line)


@pytest.mark.parametrize(("text", "amount"), [("15T", 15e12), ("1.2B", 1.2e9), ("16M", 16e6), ("37", 37.0)])
def test_amounts_are_written_as_they_are_read(text, amount):
    assert parse_amount(text) == amount
    assert format_amount(amount) == text
    assert parse_amount("300G") == parse_amount("300B") == parse_amount("3e11")
