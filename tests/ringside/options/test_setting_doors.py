"""Options equal to their defaults change nothing, to the last bit, on any way in."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

import ringside as api
from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION
from ringside.sim.predict import predict
from ringside.studies.inputs import row_of
from ringside.studies.study import Query
from ringside.topologies import MAKERS, load, settings
from ringside.topologies.catalogue import changed
from ringside.topologies.units import parse_rate

Asked = Callable[..., Any]

NCCL = (
    "--set nic=50GB/s", "--set nic=400Gb/s", "--set nic=400Gbit/s", "--set nic=0.05TB/s", "--set nic=5e10B/s",
    "--set nvlink=450GB/s", "--set nvlink=3600Gb/s", "--set pcie=48GB/s", "--set pcie=384Gbps",
    "--set nvlink_latency=600ns", "--set network_latency=2.7us", "--set network_latency=0.0027ms",
    "--set ranks_per_gpu=1", "--set nic=50GB/s --set nvlink=450GB/s --set pcie=48GB/s",
)  # fmt: skip
"""Of dgx-h100, whose figures these are."""

COLLECTIVE = ("--dtype float32", "--redop sum", "--network fifo", "--calibration auto", "--algorithm auto")

SHARED = ("--library nccl", "--ranks 16", "-g 16", "--placement even")

FAT = (
    "--set fabric=fat_tree", "--set radix=64", "--set tiers=3", "--set oversubscription=1",
    "--set oversubscription=1.0", "--set ecmp=destination", "--set hop_latency=300ns", "--set nic=400Gb/s",
)  # fmt: skip

QUESTIONS = {
    "simulate all_reduce --cluster dgx-h100:2 --size 64M": (
        *NCCL, *SHARED, *COLLECTIVE, "--protocol auto", "--engine auto", f"--nccl-version {DEFAULT_VERSION}",
    ),
    "simulate all_gather --cluster dgx-h100:2 -b 1K -e 16M -f 128": (
        "--set nic=400Gb/s", "--set pcie=48GB/s",
    ),
    "simulate all_reduce --cluster dgx-h100:4 --size 1G --set fabric=fat-tree": FAT,
    "simulate all_reduce --cluster dgx-h100:2 --size 64M --set nic=25GB/s": (
        "--set nvlink=450GB/s", "--set pcie=48GB/s", "--dtype float32",
    ),
    "simulate broadcast --cluster dgx-a100:2 --size 1M": ("--set nic=200Gb/s", "--set nvlink=300GB/s"),
    "simulate all_reduce --cluster leaf-spine:4 --size 1M": (
        "--set hosts_per_leaf=4", "--set bandwidth=200Gb/s", "--set latency=5000ns",
        "--set oversubscription=1.0", "--library ideal", "--ranks 16",
    ),
    "simulate all_gather --cluster star:4 --library gloo --size 1M": (
        "--set bandwidth=25GB/s", "--set latency=0.005ms", "--ranks 4", "--placement even",
    ),
    "simulate all_reduce --cluster dgx-h100:2 --library ideal --algorithm ring --size 1M": (
        "--set nic=400Gb/s", "--set network_latency=2700ns",
    ),
    "simulate all_reduce --cluster leonardo:32 --library mpi --size 1M": (
        "--set nic=200Gb/s", "--set processes=1", "--set memory=100GB/s", "--set network_latency=700ns",
        "--protocol auto", "--ranks 32",
    ),
    "simulate all_reduce --cluster leonardo:32 --library mpi --size 1M --set nic=50GB/s": (
        "--set memory=800Gb/s",
    ),
    "pick all_reduce --cluster dgx-h100 --nodes 2 -b 64K -e 16M -f 16": (
        "--set nic=50GB/s", "--set nic=400Gb/s", "--set nvlink=3600Gb/s", "--set nvlink_latency=600ns",
        *SHARED, *COLLECTIVE,
    ),
    "pick all_reduce --cluster leonardo --library mpi --nodes 32 -b 64K -e 16M -f 16": ("--set nic=200Gb/s",),
    "train --model resnet50 --cluster dgx-h100:2": (
        "--set nic=50GB/s", "--set nic=400Gb/s", "--set nvlink=450GB/s", "--set network_latency=2.7us",
        *SHARED, "--network fifo", "--calibration auto",
    ),
    "train --model gpt2:64 --cluster dgx-h100:2 --strategy fsdp --batch 1": (
        "--set nic=400Gb/s", "--set pcie=48GB/s", "--set ranks_per_gpu=1",
    ),
    "whatif all_reduce --cluster dgx-h100:2": (
        "--set nic=50GB/s", "--set nic=400Gb/s", "--size 64M", "--algorithm auto", "--protocol auto",
        "--library nccl", "--placement even",
    ),
    "whatif all_reduce --cluster dgx-h100:2 --try nic=0.5x": (
        "--ranks 16", "--set nic=50GB/s", "--size 64M", "--algorithm auto",
    ),
    "whatif resnet50 --cluster dgx-h100:2 --try nic=0.5x": ("--set nic=400Gb/s", "--library nccl"),
}  # fmt: skip
"""Questions, each with words that change nothing of it."""


@pytest.fixture
def ask(json_of: Asked) -> Asked:
    return lambda words: answer(json_of(words))


def answer(content: dict[str, Any]) -> dict[str, Any]:
    """Return the answer without its question: options, settings without effect, placement."""
    for key in ("inputs", "no_effect"):
        content.pop(key, None)
    content["notes"] = [note for note in content.get("notes", ()) if not note.startswith("placement ")]
    for row in content.get("rows", ()):
        row.pop("settings", None)
    return content


@pytest.mark.parametrize("question", QUESTIONS)
def test_words_that_say_what_is_so_change_nothing(ask: Asked, question: str) -> None:
    found = ask(question)
    for words in QUESTIONS[question]:
        name = words.split("=")[0]
        # a fabric's own name is written once, in another spelling
        said = question.replace(" --set fabric=fat-tree", "") if name == "--set fabric" else question
        assert ask(f"{said} {words}") == found, words


def test_there_are_a_hundred_of_them() -> None:
    assert sum(map(len, QUESTIONS.values())) >= 100


def test_a_studys_points_are_one(ask: Asked) -> None:
    for command, options in (
        ("simulate", {"collective": "all_reduce", "size": "64M"}),
        ("train", {"model": "resnet50"}),
    ):
        query = Query(command, {**options, "cluster": "dgx-h100:2", "settings": {"nic": "{nic}"}})
        rows = [row_of(query, 0, {"nic": nic}) for nic in ("50GB/s", "400Gb/s")]
        query = Query(command, {**options, "cluster": "dgx-h100:{nodes}"})
        plain = row_of(query, 0, {"nodes": "2"})
        kept = {key for key in plain if key not in ("nodes", "elapsed_s") and "settings" not in key}
        for row in rows:
            assert row["error"] is None
            assert {key: row[key] for key in kept} == {key: plain[key] for key in kept}


def test_functions_say_what_commands_say(ask: Asked) -> None:
    asked = Collective("all_reduce", 16, 2**26, dtype="float32")
    for values in ({"nic": "50GB/s"}, {"nic": "400Gb/s"}, {"nvlink": "450GB/s", "pcie": "384Gb/s"}):
        assert predict(asked, load("dgx-h100:2", values)) == predict(asked, load("dgx-h100:2"))
        choice = api.AlgorithmChoice(
            collective="all_reduce", cluster="dgx-h100", nodes=(2,), size=(2**20, 2**26)
        )
        assert replace(choice, settings=values).ask().picks == choice.ask().picks
        assert api.train("resnet50", "dgx-h100:2", settings=values) == api.train("resnet50", "dgx-h100:2")
    (row,) = ask("simulate all_reduce --cluster dgx-h100:2 --size 64M --set nic=25GB/s")["rows"]
    assert predict(asked, load("dgx-h100:2", {"nic": "200Gb/s"})).time_s == row["time_s"]


@pytest.mark.parametrize("name", MAKERS)
def test_no_default_of_a_cluster_changes_it(name: str) -> None:
    """Also as bits, where it is a rate."""
    for key, value in settings(name).items():
        spelled = [value]
        with suppress(ValueError):
            spelled.append(f"{parse_rate(value) * 8:.17g}b/s")
        for text in spelled:
            assert changed(name, {key: text}) == {}, (key, text)


def test_a_file_of_changed_machines_is_their_name_with_settings(ask: Asked) -> None:
    ask("topo dgx-h100:2 --set nic=25GB/s -o slow.yaml")
    ask("topo dgx-h100:2 --set nic=400Gb/s -o own.yaml")
    question = "simulate all_reduce --size 64M --cluster"
    assert ask(f"{question} own.yaml") == ask(f"{question} dgx-h100:2")
    slow = ask(f"{question} dgx-h100:2 --set nic=25GB/s")
    assert ask(f"{question} slow.yaml") == slow
    assert ask(f"{question} slow.yaml --set nic=200Gb/s") == slow
    assert ask(f"{question} slow.yaml --set nic=400Gb/s") == ask(f"{question} dgx-h100:2")
    assert ask(f"{question} own.yaml --set nic=25GB/s") == slow
