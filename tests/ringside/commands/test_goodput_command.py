"""`ringside goodput`: its output, its options and its error messages."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import ringside as package
from ringside.sim.goodput.failures import parse_causes
from ringside.sim.goodput.job import DAY_S
from ringside.sim.goodput.published import PUBLISHED
from ringside.validation.questions.job_goodput import JobGoodput

OWN = "goodput --nodes 16 --mtbf 3h --checkpoint 30s --trials 10"


def test_the_published_trainings_are_listed_with_their_sources(json_of, printed):
    out = printed("goodput")
    assert all(name in out for name in PUBLISHED)
    assert "arXiv:2407.21783" in out
    assert [row["name"] for row in json_of("goodput")["trainings"]] == list(PUBLISHED)


def test_a_published_training_is_told_in_a_table(printed):
    out = printed("goodput bloom-176b --trials 10")
    lines = out.splitlines()
    assert re.match(r"# 9\d\.\d% goodput with a checkpoint every 94.2 min", lines[0])
    assert "# BLOOM 176B, 384 A100" in lines
    assert any(line.startswith("# best interval 94.2 min, by Young ") for line in lines)
    (row,) = [line.split() for line in lines if not line.startswith("#") and "94.2min" in line]
    assert 95 < float(row[1]) < 100
    assert any(line.split()[:1] == ["wasted_progress"] for line in lines)


def test_the_same_in_json_adds_up(json_of):
    answer = json_of(f"{OWN} --interval 20min --interval 1h --step 17s")
    assert answer["schema"] == "ringside.goodput/1"
    assert [row["interval_s"] for row in answer["rows"]] == [1207, 3604]
    for row in answer["rows"]:
        assert sum(row["spent"].values()) == pytest.approx(1)
        assert row["low99"] < row["simulated"] < row["high99"]
        assert row["expected"] == pytest.approx(row["simulated"], rel=0.01)
    assert answer["mtbf_s"] == pytest.approx(3 * 3600)
    assert answer["published"] is None


def test_a_picture_is_drawn(printed, tmp_path):
    printed(f"{OWN} --work 5d --plot g.svg")
    assert "best: every" in (tmp_path / "g.svg").read_text()


def test_a_job_that_never_fails_is_answered_too(json_of, printed):
    calm = "goodput --nodes 4 --failures 0/day --checkpoint 3s --work 1d --trials 10"
    assert "no failures" in printed(f"{calm} --plot g.svg")
    assert json_of(calm)["best_interval_s"] is None


def test_nodes_that_lack_are_told_of(ringside):
    _, out, _ = ringside(*"goodput rsc-2 --spares 0 --replica 4 --repair 2d --trials 10".split())
    assert "# a node is lost every 3.34 d and repaired after 2 d; the formula assumes that" in out
    (line,) = [line for line in out.splitlines() if "missing_replicas" in line]
    assert float(line.split()[1]) > 0


def test_what_is_written_stands_in_place_of_what_is_published():
    written = {"checkpoint": "30s", "persist": "2min", "restart": "5min", "work": "7d"}
    question = JobGoodput(training="llama3-405b", nodes=1024, spares=0, **written)
    job, old = question.job(), PUBLISHED["llama3-405b"].job
    assert (job.nodes, job.work_s, job.spares) == (1024, 7 * DAY_S, 0)
    assert job.mtbf_s == pytest.approx(2 * old.mtbf_s)
    assert (job.checkpoints.write_s, job.checkpoints.persist_s) == (30, 120)
    assert (job.restart.start_s, job.restart.stop_s, job.restart.load_s) == (300, 0, old.restart.load_s)


@pytest.mark.parametrize(
    ("text", "per_node_day"),
    [
        ("6.5/1000node-days", 0.0065),
        ("gpu=0.001/gpu-day", 0.008),
        ("x=1/gpu-year,hang", 8 / 365),
        ("2/day", 0.5),
        ("1/week,node-lost", 0.25 / 7),
        ("1e-3/node-hour", 0.024),
        ("0/day", 0),
    ],
)
def test_rates_are_read_in_every_unit(text, per_node_day):
    (cause,) = parse_causes([text], nodes=4, gpus_per_node=8)
    assert cause.per_node_s * DAY_S == pytest.approx(per_node_day)
    assert cause.hangs == text.endswith("hang")
    assert cause.loses_node == text.endswith("lost")


RECORD = Path(__file__).parents[3] / "validation/published/faults/infinitehbd.json"
RECORDED = f"goodput --faults {RECORD} --checkpoint 30s --trials 10 --work 10d"


def test_recorded_faults_say_what_is_down_and_what_spares_are_for(printed, json_of):
    out = printed(RECORDED)
    assert "313 faults of 159 of 400 nodes in 174 d, 4.49 in 1000 node-days" in out
    assert "358 nodes with 42 spares are whole for 99.1% of the time" in out
    answer = json_of(f"{RECORDED} --nodes 300 --spares 20")
    faults = answer["faults"]
    assert (answer["nodes"], answer["spares"]) == (300, 20)
    assert faults["recorded"] | {"mean": 0} == {
        "node_days": 2030.8981,
        "mean": 0,
        "p50": 7,
        "p90": 26,
        "p99": 32,
    }
    assert faults["expected"]["p90"] == 24
    assert [row["share"] for row in faults["spares"]] == [0.5, 0.9, 0.99]
    assert faults["spares"][1]["spares"] <= 20
    assert 0.9 <= faults["whole"] < 0.99
    assert answer["mtbf_s"] == pytest.approx(86_400_000 / faults["per_1000_node_days"] / 300)
    assert sum(cause["name"] == "GPU" for cause in answer["causes"]) == 1
    assert 0.5 < answer["rows"][0]["simulated"] < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--faults nope.json", "nope.json: No such file or directory"),
        (f"--faults {RECORD} --mtbf 3h", "--faults has failures and repairs, and so has --mtbf"),
        (f"--faults {RECORD} --whole 2", "--whole 2; write a share of the time such as 0.99"),
        (f"--faults {RECORD} --watched 3", "3 nodes, but 159 had faults"),
        ("--nodes 3 --mtbf 3h --whole 0.9", "--whole is of recorded faults; write --faults too"),
    ],
)
def test_faults_that_say_nothing_are_refused(refused, options, message):
    assert message in refused(f"goodput --checkpoint 30s {options}")


def test_a_file_of_something_else_is_left_alone(refused, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "thesis.tex contains no elastic runs; write another name after -o" in refused(
        "measure elastic -o thesis.tex"
    )
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


JOB = str(Path(__file__).parents[3] / "examples/recorded.json")
FAILING = {"mtbf": "3h", "checkpoint": 10.0, "trials": 10}


@pytest.mark.parametrize(
    ("model", "ranks", "tokens"),
    [("gpt2", None, 1024), ("gpt2", 16, 1024), (JOB, 64, None)],
)
def test_a_model_gives_the_goodput_of_its_step(model, ranks, tokens):
    step = package.StepTime(model=model, cluster="dgx-h100:8", ranks=ranks).step()
    of_model = package.JobGoodput(model=model, cluster="dgx-h100:8", ranks=ranks, **FAILING)
    own = package.JobGoodput(nodes=8, gpus_per_node=step.ranks // 8, step=step.step_s, **FAILING)
    if tokens:
        of_model = replace(of_model, tokens=3e11, price=2.0)
        own = replace(own, tokens=3e11, price=2.0, step_tokens=tokens * step.samples)
    assert of_model.ask().rows == own.ask().rows


def test_a_model_s_step_is_said_with_what_it_rests_on(ringside, json_of):
    asked = f"goodput --model {JOB} --cluster dgx-h100:2 --mtbf 3h --checkpoint 10s --trials 10"
    _, out, _ = ringside(*asked.split())
    text = " ".join(out.replace("#", "").split())
    assert "the step as ringside train predicts it: 2.999 ms a step" in text
    assert "recorded operators by kernels on h100" in text
    content = json_of(*asked.split())
    assert content["step"]["step_s"] == pytest.approx(3.0e-3, rel=0.01)
    assert (content["step"]["nodes"], content["step"]["gpus_per_node"], content["nodes"]) == (2, 8, 2)


def test_tokens_of_a_recorded_job_are_not_known(refused):
    asked = f"goodput --model {JOB} --cluster dgx-h100:2 --mtbf 3h --checkpoint 3s --tokens 1T"
    assert "write for example --step-tokens 16M" in refused(asked)


def test_python_gives_the_same_goodput():
    question = package.JobGoodput(nodes=8, mtbf="5h", work=1e6, checkpoint=30.0, restart=300.0, trials=10)
    (best,) = question.ask().goodputs
    (worse,) = replace(question, interval=(best.interval_s * 4,)).ask().goodputs
    assert worse.simulated < best.simulated
    assert package.JobGoodput(training="bloom-176b", trials=10).ask().goodputs[0].simulated > 0.95
    (row,) = package.rows([best])
    assert row["simulated"] == best.simulated
