"""A cluster described in ten lines works with every command that predicts."""

import json

import pytest

from ringside.topologies.units import parse_rate

SIMULATE = "simulate all_reduce --cluster mine.yaml --library nccl --size 64M"
PICK = "pick all_reduce --cluster mine.yaml --nodes 1,4 -b 1M -e 16M -f 4"
TRAIN = "train --model resnet50 --cluster mine.yaml"
COMMANDS = ("topo mine.yaml", SIMULATE, PICK, TRAIN)


@pytest.fixture
def mine(ringside, tmp_path):
    code, out, err = ringside("topo", "--example")
    assert (code, err) == (0, "")
    path = tmp_path / "mine.yaml"
    path.write_text(out, encoding="utf-8")
    return path


def asked(ringside, words):
    code, out, err = ringside(*words.split(), "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_example_goes_through_four_commands(ringside, mine):
    assert asked(ringside, "topo mine.yaml")["ranks"] == 32
    (row,) = asked(ringside, SIMULATE)["rows"]
    carried = 64 * 2**20 * 2 * 3 / 4  # what a ring takes out of each of four machines, by its one card
    assert row["time_s"] > carried / parse_rate("100Gb/s")
    assert {row["num_nodes"] for row in asked(ringside, PICK)["rows"]} == {1, 4}
    assert asked(ringside, TRAIN)["inputs"]["device"] == "a100"


def test_settings_mean_the_same_at_every_command(ringside, mine):
    example = mine.read_text(encoding="utf-8")
    for words in COMMANDS:
        mine.write_text(example, encoding="utf-8")
        changed = asked(ringside, f"{words} --set gpus=4 --set gpu=h100 --set nic=400Gb/s")
        mine.write_text(
            "{machine: pcie-server, gpu: h100, gpus: 4, nic: 400Gb/s, pcie: 24GB/s, nodes: 4}",
            encoding="utf-8",
        )
        written = asked(ringside, words)
        for found in (changed, written):
            found.get("inputs", {}).pop("settings", None)
            found.pop("no_effect", None)  # said of settings alone
        assert changed == written


def test_the_gpu_of_a_file_is_that_of_a_training_step(ringside, mine):
    for gpu in ("h100", "b200"):
        assert asked(ringside, f"{TRAIN} --set gpu={gpu}")["inputs"]["device"] == gpu


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("machine: toaster", "machine: 'toaster': input should be 'pcie-server'"),
        ("machine: pcie-server\ngpus: many", "gpus: 'many'"),
        ("machine: pcie-server\nnvlinks: 3GB/s", "nvlinks: is not known; allowed: nodes, machine"),
        ("machine: pcie-server\nnodes: 2\nnics: 0", "nics is 0"),
    ],
)
def test_nonsense_exits_2_in_words(ringside, mine, words, text, said):
    if "--nodes" in words and "nodes: 2" in text:
        words = words.replace("1,4", "4")
    mine.write_text(text, encoding="utf-8")
    code, out, err = ringside(*words.split())
    assert (code, out) == (2, "")
    assert said in err


def test_the_example_stands_alone(ringside):
    code, out, err = ringside("topo", "star:4", "--example")
    assert (code, out) == (2, "")
    assert "remove the other options" in err
