"""``--network``: every command and function that simulates schedules accepts and reports it."""

from pathlib import Path

import pytest

import ringside as api
from ringside.sim.collective import Collective
from ringside.sim.predict import predict
from ringside.sim.record import write
from ringside.topologies import load, star
from ringside.validation.compare import compare
from tests.made_up import record

M = 1 << 20
LOG = Path(__file__).parents[2] / "validation" / "data" / "v2.0_all_reduce.log"
CROWDED = ("--cluster", "leaf-spine:4", "--set", "oversubscription=4")
QUESTION = ("simulate", "all_reduce", *CROWDED, "--algorithm", "halving_doubling", "--size", "16M")


def test_every_door_answers_by_the_network_that_was_named(json_of, tmp_path):
    fifo, fair = (json_of(*QUESTION, "--network", network) for network in ("fifo", "fair"))
    assert fifo == json_of(*QUESTION)
    assert (fifo["inputs"]["network"], fair["inputs"]["network"]) == ("fifo", "fair")
    time_s = fair["rows"][0]["time_s"]
    assert time_s != fifo["rows"][0]["time_s"]

    asked, graph = (
        Collective("all_reduce", 16, 16 * M, dtype="float32"),
        load(CROWDED[1], {"oversubscription": "4"}),
    )
    found = predict(asked, graph, algorithm="halving_doubling", network="fair")
    assert (found.time_s, found.network) == (time_s, "fair")

    write([record(algorithm="halving_doubling", ranks=16, nbytes=16 * M)], tmp_path / "m.jsonl")
    compared = json_of("compare", "m.jsonl", *CROWDED, "--network", "fair")
    assert (compared["rows"][0]["predicted_s"], compared["inputs"]["network"]) == (time_s, "fair")


def test_pick_and_train_wait_for_the_same_time(json_of):
    cluster = ("--cluster", "leaf-spine", "--set", "oversubscription=4", "--network", "fair")
    picked = json_of("pick", "all_reduce", *cluster, "--nodes", "2", "-b", "4M", "-e", "4M")
    (row,) = picked["rows"]
    words = ("--cluster", "leaf-spine:2", *cluster[2:], "--algorithm", row["algorithm"], "--size", "4M")
    (simulated,) = json_of("simulate", "all_reduce", *words)["rows"]
    assert (row["time_s"], picked["inputs"]["network"]) == (simulated["time_s"], "fair")
    choice = api.AlgorithmChoice(
        collective="all_reduce", cluster="leaf-spine", nodes=(2,), size=(4 * M,),
        settings={"oversubscription": "4"}, network="fair",
    )  # fmt: skip
    (same,) = choice.ask().picks
    assert same.time_s == row["time_s"]


def test_a_training_step_of_gloo_shares_links_too(json_of):
    job = ("--model", "resnet50", "--cluster", "star:4", "--set", "bandwidth=1GB/s", "--library", "gloo")
    fifo, fair = (json_of("train", *job, "--network", network) for network in ("fifo", "fair"))
    assert fair["inputs"]["network"] == "fair"
    assert fair["rows"][0]["step_s"] != fifo["rows"][0]["step_s"]
    step = api.train("resnet50", "star:4", settings={"bandwidth": "1GB/s"}, library="gloo", network="fair")
    assert step.step_s == fair["rows"][0]["step_s"]


def test_the_table_says_it(ringside):
    _, out, _ = ringside(*QUESTION, "--network", "fair")
    assert "network fair" in out
    _, out, _ = ringside("train", "--model", "resnet50", "--cluster", "star:4", "--network", "fair")
    assert "collectives of ideal on the fair network" in out


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "all_reduce", "--cluster", "star:4", "--size", "1M"),
        ("simulate", "all_reduce", "--cluster", "dgx-h100:2", "--size", "1M"),
        ("pick", "all_reduce", "--cluster", "star", "--nodes", "4"),
        ("train", "--model", "resnet50", "--cluster", "star:4"),
        ("compare", str(LOG), "--cluster", "dgx-b200:1"),
    ],
)
@pytest.mark.parametrize("network", ["", "Fair", "fare"])
def test_what_is_no_network_is_refused(refused, words, network):
    err = refused(*words, "--network", network)
    message = err.splitlines()[-1]
    assert (
        "known: fifo, fair" in message
        or "write one of fifo, fair" in message
        or (not network and "write a text" in message)
    )


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "all_reduce", "--cluster", "dgx-h100:2", "--size", "1M"),
        ("pick", "all_reduce", "--cluster", "dgx-h100", "--nodes", "2"),
        ("train", "--model", "resnet50", "--cluster", "dgx-h100:2"),
        ("compare", str(LOG), "--cluster", "dgx-b200:1"),
    ],
)
def test_nccls_own_times_know_no_network(refused, words):
    message = refused(*words, "--network", "fair")
    assert "do not model the fair network; simulate with --engine simpy, or remove --network" in message


def test_nccls_schedules_are_played_on_it(json_of):
    words = ("simulate", "all_reduce", "--cluster", "dgx-h100:2", "--size", "16M", "--engine", "simpy")
    fifo, fair = (json_of(*words, "--network", network)["rows"][0]["time_s"] for network in ("fifo", "fair"))
    assert fair != fifo
    assert fair == pytest.approx(fifo, rel=0.1)


def test_a_calibration_is_of_the_fifo_network(tmp_path):
    from ringside import calibrate

    records = [record(ranks=16, nbytes=nbytes * M) for nbytes in (1, 2, 4, 8)]
    fitted = calibrate(records, "star:16")
    with pytest.raises(ValueError, match="calibrations are fitted on the fifo network, not on fair"):
        predict(
            Collective("all_reduce", 16, M), star(16), algorithm="ring", calibration=fitted, network="fair"
        )
    with pytest.raises(ValueError, match="calibrations are fitted on the fifo network, not on fair"):
        compare(records, "star:16", calibration=fitted, network="fair")
