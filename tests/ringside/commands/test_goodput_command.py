"""`ringside goodput`: its output, its options and its error messages."""

import json
from dataclasses import replace

import pytest

import ringside as package
from ringside.sim.goodput.job import DAY_S
from ringside.sim.goodput.published import PUBLISHED
from ringside.sim.questions.job_goodput import JobGoodput, parse_causes

OWN = "goodput --nodes 16 --mtbf 3h --checkpoint 30s --trials 10"


def test_the_published_trainings_are_listed_with_their_sources(ringside):
    code, out, err = ringside("goodput")
    assert code == 0, err
    assert all(name in out for name in PUBLISHED)
    assert "arXiv:2407.21783" in out
    code, out, _ = ringside("goodput", "--json")
    assert [row["name"] for row in json.loads(out)["trainings"]] == list(PUBLISHED)


def test_a_published_training_is_told_in_a_table(ringside):
    code, out, err = ringside(*"goodput bloom-176b --trials 10".split())
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "# BLOOM 176B, 384 A100"
    assert any(line.startswith("# best interval 94.2 min, by Young ") for line in lines)
    (row,) = [line.split() for line in lines if not line.startswith("#") and "94.2min" in line]
    assert 95 < float(row[1]) < 100
    assert any(line.split()[:1] == ["wasted_progress"] for line in lines)


def test_the_same_in_json_adds_up(ringside):
    code, out, err = ringside(*OWN.split(), *"--interval 20min --interval 1h --step 17s --json".split())
    assert code == 0, err
    found = json.loads(out)
    assert found["schema"] == "ringside.goodput/1"
    assert [row["interval_s"] for row in found["rows"]] == [1207, 3604]
    for row in found["rows"]:
        assert sum(row["spent"].values()) == pytest.approx(1)
        assert row["low99"] < row["simulated"] < row["high99"]
        assert row["expected"] == pytest.approx(row["simulated"], rel=0.01)
    assert found["mtbf_s"] == pytest.approx(3 * 3600)
    assert found["published"] is None


def test_a_picture_is_drawn(ringside, tmp_path):
    code, _, err = ringside(*OWN.split(), *"--work 5d --plot g.svg".split())
    assert code == 0, err
    assert "best: every" in (tmp_path / "g.svg").read_text()


def test_a_job_that_never_fails_is_answered_too(ringside, tmp_path):
    calm = "goodput --nodes 4 --failures 0/day --checkpoint 3s --work 1d --trials 10"
    code, out, err = ringside(*calm.split(), "--plot", "g.svg")
    assert code == 0, err
    assert "no failures" in out
    code, out, _ = ringside(*calm.split(), "--json")
    assert json.loads(out)["best_interval_s"] is None


def test_nodes_that_lack_are_told_of(ringside):
    _, out, _ = ringside(*"goodput rsc-2 --spares 0 --replica 4 --repair 2d --trials 10".split())
    assert "# a node is lost every 3.34 d and repaired after 2 d; the formula assumes that" in out
    (line,) = [line for line in out.splitlines() if "missing_replicas" in line]
    assert float(line.split()[1]) > 0


def test_what_is_written_stands_in_place_of_what_is_published():
    question = JobGoodput(
        training="llama3-405b",
        nodes=1024,
        checkpoint="30s",
        persist="2min",
        restart="5min",
        work="7d",
        spares=0,
    )
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("goodput llama", "'llama' is not a published training; write one of llama3-405b"),
        ("goodput --nodes 4", "no failure rate; write --failures 6.5/1000node-days"),
        ("goodput --mtbf 3h --checkpoint 3s", "no node count; write --nodes 128"),
        ("goodput --nodes 4 --mtbf 3h", "write for example --checkpoint 30s"),
        ("goodput --nodes 0 --mtbf 3h --checkpoint 3s", "0 nodes; write 1 to"),
        ("goodput --nodes -4 --mtbf 3h --checkpoint 3s", "-4 nodes"),
        (f"{OWN} --spares 17", "17 spare nodes for 16; write 0 to 16"),
        (f"{OWN} --spares -1", "-1 spare nodes"),
        (f"{OWN} --replica 5", "replicas of 5 nodes do not make up 16 nodes"),
        (f"{OWN} --replica 0", "replicas of 0 nodes"),
        (f"{OWN} --interval 0s", "a checkpoint every 0 s; write "),
        (f"{OWN} --interval nan", "'nan' is not a duration"),
        (f"{OWN} --interval -5min", "negative"),
        (f"{OWN} --interval 5", "'5' is not a duration; write for example"),
        (f"{OWN} --persist 2h --interval 1h", "write 7170 s"),
        (f"{OWN} --step 0s", "--step is 0; write"),
        (f"{OWN} --work 0s", "write a duration above 0"),
        (f"{OWN} --work 1e9d", "is too long"),
        (f"{OWN} --interval 29d", "failures in each of 10 lives"),
        (f"{OWN} --failures 3/day", "remove one of them"),
        (f"{OWN} --gpus-per-node 0", "--gpus-per-node 0; write 1 to 1024"),
        (f"{OWN} --seed -1", "seed -1; write 0 or more"),
        (f"{OWN} --plot g.bmp", "write a name that ends in"),
        (f"{OWN} --checkpoint inf", "'inf' is not a duration"),
        ("goodput --nodes 4 --mtbf 0s --checkpoint 3s", "mean time between failures: 0; write"),
        ("goodput --nodes 4 --mtbf nan --checkpoint 3s", "'nan' is not a duration"),
        ("goodput llama3-405b --trials 1", "1 trials; write 10 to 100000"),
        ("goodput llama3-405b --failures -1/day", "'-1/day' is not a rate of failures; write [CAUSE=]RATE"),
        ("goodput llama3-405b --failures nan/day", "is not a rate of failures"),
        ("goodput llama3-405b --failures 3/0days", "rate over no time"),
        ("goodput llama3-405b --failures 3/fortnight", "is not a rate of failures"),
        ("goodput llama3-405b --failures =3/day", "is not a cause of failures"),
        ("goodput llama3-405b --failures 3/day,dead", "is not a cause of failures"),
        ("goodput llama3-405b --failures a=1/day --failures a=2/day", "'a' is given twice"),
        ("goodput llama3-405b --failures 1e99/gpu-hour", "write a rate of 0 or more"),
        ("measure elastic -o e.jsonl --interval 0", "invalid --interval '0'; write for example 2,5"),
        ("measure elastic -o e.jsonl --interval 5,5", "has a duplicate"),
        ("measure elastic -o e.jsonl --interval 500", "200 steps with a checkpoint every 500"),
        ("measure elastic -o e.jsonl --kills -1", "--kills -1; write 0 to 100"),
        ("measure elastic -o e.jsonl --step 0s", "steps of 0.0 s"),
        ("measure elastic -o e.jsonl --checkpoint 0", "a checkpoint of 0 bytes"),
        ("measure elastic -o e.jsonl -g 1", "write 2 or more"),
        (
            "measure elastic -o e.jsonl --interval 5 --plot e.svg",
            "needs two intervals and a kill; remove --plot",
        ),
        (
            "measure elastic -o e.jsonl --backend nccl",
            "--backend is not an option of ringside measure elastic",
        ),
        ("measure elastic -o no/such/e.jsonl", "write another path"),
        (
            "measure all_reduce -o e.jsonl --kills 3",
            "--kills is not an option of ringside measure, but of ringside measure elastic",
        ),
    ],
)
def test_nonsense_is_refused_with_what_to_write(ringside, tmp_path, words, message):
    code, out, err = ringside(*words.split())
    assert code == 2, (out, err)
    assert message in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_a_file_of_something_else_is_left_alone(ringside, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    code, _, err = ringside(*"measure elastic -o thesis.tex".split())
    assert code == 2
    assert "thesis.tex contains no elastic runs; write another name after -o" in err
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_python_gives_the_same_goodput():
    question = package.JobGoodput(nodes=8, mtbf="5h", work=1e6, checkpoint=30.0, restart=300.0, trials=10)
    (best,) = question.ask().goodputs
    (worse,) = replace(question, interval=(best.interval_s * 4,)).ask().goodputs
    assert worse.simulated < best.simulated
    assert package.JobGoodput(training="bloom-176b", trials=10).ask().goodputs[0].simulated > 0.95
    (row,) = package.rows([best])
    assert row["simulated"] == best.simulated
