"""What the page shows is what the command prints, to the last digit."""

import http.client
import json
import random
import shlex
import time
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parents[3] / "examples/recorded.json"


def states():
    """Return 40 random states of both screens."""
    draw = random.Random(36)
    for _ in range(28):
        cluster = draw.choice(
            ["dgx-h100", "dgx-a100", "aws-p5", "perlmutter-a100", "star", "leaf-spine", "mi300x"]
        )
        state = {
            "collective": draw.choice(["all_reduce", "all_gather", "reduce_scatter", "broadcast"]),
            "cluster": cluster,
            "nodes": draw.choice("2348"),
            "size": draw.choice(["8K", "1M", "48M", "1M,256M"]),
            "algorithm": draw.choice(["", "", "ring", "ring,tree"]),
            "nic": draw.choice(["", "", "100Gb/s", "30GB/s"]),
            "more": draw.choice(
                ["", "", "--dtype bfloat16", "--set latency=2us" if cluster == "star" else ""]
            ),
        }
        if cluster in ("dgx-h100", "leaf-spine"):
            state["oversubscription"] = draw.choice(["", "2"])
        yield "collective", state
    for _ in range(11):
        yield "training", {
            "model": draw.choice(["llama3-8b:2048", "gpt2-xl:512", "resnet50"]),
            "cluster": draw.choice(["dgx-h100", "dgx-a100"]), "nodes": draw.choice("12"),
            "batch": draw.choice(["4", "8"]), "tp": draw.choice("12"), "pp": draw.choice("124"),
            "strategy": draw.choice(["", "distributed_optimizer"]), "stack": draw.choice(["", "te"]),
            "checkpointing": draw.choice(["none", "full"]), "sequence_parallel": draw.choice(["", "yes"]),
        }  # fmt: skip
    yield "recorded", {"model": str(RECORDED), "cluster": "dgx-h100", "nodes": "2"}


def test_forty_random_states_have_the_commands_numbers(served, ringside):
    answered, checked = 0, 0
    for screen, state in states():
        first, *_, last = served.ask(screen, "answer", **state)
        command = first["spelled"]["command"]
        code, out, err = ringside(*shlex.split(command)[1:], "--json")
        if "error" in last:
            assert code == 2, command
            assert last["error"] in " ".join(err.split()).replace("ringside: ", ""), command
        else:
            assert code == 0, err
            assert last["answer"]["json"].split() == out.split(), command
            answered += 1
        checked += 1
    assert checked == 40
    assert answered >= 28


def test_the_python_code_gives_the_same_rows(served, capsys):
    state = {"collective": "all_reduce", "cluster": "dgx-h100", "nodes": "4", "size": "64M", "nic": "25GB/s"}
    first, *_, last = served.ask("collective", "answer", **state)
    names = {}
    exec(first["spelled"]["python"], names)
    assert names["answer"].rows == json.loads(last["answer"]["json"])["rows"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("screen", "view"),
    [("collective", "limits"), ("collective", "map"), ("collective", "timeline"), ("training", "timeline")],
)
def test_every_view_shows_a_picture_or_rows_and_says_it_in_words(served, screen, view):
    state = {
        "collective": "all_reduce",
        "cluster": "star",
        "nodes": "8",
        "size": "1M",
        "algorithm": "ring,tree",
    }
    if screen == "training":
        state = {"model": "gpt2-xl:512", "cluster": "dgx-a100", "nodes": "1", "pp": "2", "batch": "4"}
    *_, last = served.ask(screen, view, **state)
    answer = last["answer"]
    assert answer["headline"]
    assert answer.get("rows") or answer["picture"].startswith("<?xml")


def test_an_animation_is_a_page_and_what_it_shows_is_refused_in_words(served):
    base = f"{urlsplit(served.address).path}"
    status, _, text = served.get(
        f"{base}collective/animation?collective=all_reduce&cluster=star&nodes=8&size=1M"
    )
    assert (status, text.count("<svg"), 'id="scenes"' in text) == (200, 0, True)
    status, _, text = served.get(f"{base}training/animation?model=resnet50&cluster=dgx-a100&nodes=1")
    assert status == 422
    assert "this has none" in text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"size": "12 parsecs"}, "12 parsecs"),
        ({"size": "1M", "more": "--no-such-option 3"}, "--no-such-option is no option of ringside simulate"),
        ({"size": "1M", "more": "--dtype"}, "--dtype needs a value"),
        ({"size": "1M", "cluster": "dgx-h1000"}, "dgx-h1000"),
        ({"size": "1M", "nodes": "0"}, "0"),
    ],
)
def test_wrong_input_is_answered_as_by_the_command(served, state, words):
    *_, last = served.ask(
        "collective", "answer", **({"collective": "all_reduce", "cluster": "star", "nodes": "4"} | state)
    )
    assert words in last["error"]


LONG = {"collective": "all_reduce", "cluster": "star", "nodes": "1024", "size": "64M", "algorithm": "ring",
        "more": "--engine simpy"}  # fmt: skip


def test_a_question_that_would_take_long_is_refused_with_its_estimate(served):
    *_, last = served.ask("collective", "answer", **LONG | {"nodes": "16384"})
    assert "transfers to simulate, about" in last["error"]
    assert "the maximum is" in last["error"]


def test_a_long_question_says_how_far_it_is_and_ends_when_nobody_listens(started):
    server = started()
    quick = {"collective": "all_reduce", "cluster": "star", "nodes": "4", "size": "1M"}
    server.ask("collective", "answer", **quick)
    for _ in range(3):  # more than there are workers
        connection = http.client.HTTPConnection(server.host, timeout=60)
        path = f"{urlsplit(server.address).path}collective/answer?{urlencode(LONG)}"
        connection.request("GET", path, headers={"Host": server.host})
        response = connection.getresponse()
        said = [json.loads(response.readline()).get("progress") for _ in range(2)]
        assert "2,095,104 transfers to simulate, about" in said[1]
        while " of 2,095,104 transfers" not in said[-1]:
            said.append(json.loads(response.readline())["progress"])
        response.close()
        connection.close()
    began = time.monotonic()
    assert "answer" in server.ask("collective", "answer", **quick)[-1]
    assert time.monotonic() - began < 10
