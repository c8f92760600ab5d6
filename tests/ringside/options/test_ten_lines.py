"""A cluster described in ten lines works with every command that predicts."""

import json

import pytest

from ringside.topologies.units import parse_rate

SIMULATE = "simulate all_reduce --cluster mine.yaml --library nccl --size 64M"
PICK = "pick all_reduce --cluster mine.yaml --nodes 1,4 -b 1M -e 16M -f 4"
TRAIN = "train --model resnet50 --cluster mine.yaml"
COMMANDS = ("topo mine.yaml", SIMULATE, PICK, TRAIN)


@pytest.fixture
def asked(silently):
    return lambda words: json.loads(silently(f"{words} --json"))


@pytest.fixture
def mine(silently, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(silently("topo", "--example"), encoding="utf-8")
    return path


def test_the_example_goes_through_four_commands(asked, mine):
    assert asked("topo mine.yaml")["ranks"] == 32
    (row,) = asked(SIMULATE)["rows"]
    carried = 64 * 2**20 * 2 * 3 / 4  # what a ring takes out of each of four machines, by its one card
    assert row["time_s"] > carried / parse_rate("100Gb/s")
    assert {row["num_nodes"] for row in asked(PICK)["rows"]} == {1, 4}
    assert asked(TRAIN)["inputs"]["device"] == "a100"


def test_settings_mean_the_same_at_every_command(asked, mine):
    example = mine.read_text(encoding="utf-8")
    for words in COMMANDS:
        mine.write_text(example, encoding="utf-8")
        changed = asked(f"{words} --set gpus=4 --set gpu=h100 --set nic=400Gb/s")
        mine.write_text(
            "{machine: pcie-server, gpu: h100, gpus: 4, nic: 400Gb/s, pcie: 24GB/s, nodes: 4}",
            encoding="utf-8",
        )
        written = asked(words)
        for found in (changed, written):
            found.get("inputs", {}).pop("settings", None)
            found.pop("no_effect", None)  # said of settings alone
        assert changed == written


def test_the_gpu_of_a_file_is_that_of_a_training_step(asked, mine):
    for gpu in ("h100", "b200"):
        assert asked(f"{TRAIN} --set gpu={gpu}")["inputs"]["device"] == gpu


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("machine: toaster", "machine: 'toaster': input should be 'pcie-server'"),
        ("machine: pcie-server\ngpus: many", "gpus: 'many'"),
        ("machine: pcie-server\nnvlinks: 3GB/s", "nvlinks: is not known; allowed: nodes, machine"),
        ("machine: pcie-server\nnodes: 2\nnics: 0", "nics is 0"),
    ],
)
def test_nonsense_exits_2_in_words(refused, mine, words, text, message):
    if "--nodes" in words and "nodes: 2" in text:
        words = words.replace("1,4", "4")
    mine.write_text(text, encoding="utf-8")
    assert message in refused(words)


def test_the_example_stands_alone(refused):
    assert "remove the other options" in refused("topo", "star:4", "--example")
