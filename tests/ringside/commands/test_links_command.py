"""``simulate --links``, its picture, and rates without effect."""

import json
import re
from pathlib import Path

import pytest

from tests.golden.questions import ask

DOCUMENT = Path(__file__).parents[3] / "docs" / "fabrics.md"


QUESTION = "simulate all_reduce --cluster leaf-spine:4 --set oversubscription=4 --size 16M"


def test_the_table_of_the_busiest_links(printed):
    out = printed(f"{QUESTION} --algorithm halving_doubling --links --top 5")
    assert out[out.index("# busiest") :].startswith(
        """\
# busiest links of halving_doubling all_reduce of 16 MiB on 16 ranks
# 5 of 40 links that carry messages; --top sets the number
#            link      bytes   busy  messages  wait mean  wait max
#                        (B)    (%)                 (us)      (us)
   leaf0 -> spine  100663296  92.96       128     394.83    1006.6
   leaf1 -> spine  100663296  92.96       128     394.83    1006.6
   leaf2 -> spine  100663296  92.96       128     394.83    1006.6
   leaf3 -> spine  100663296  92.96       128     394.83    1006.6
   spine -> leaf0  100663296  92.96       128       0.00      0.00"""
    )


def test_links_as_json_and_the_same_time_as_without_them():
    found, plain = (ask(f"{QUESTION} --algorithm ring --json{more}") for more in (" --links", ""))
    assert found["rows"] == plain["rows"]
    assert "links" not in plain
    assert len(found["links"]["links"]) == 10
    first = found["links"]["links"][0]
    assert first["link"] == "gpu0 -> leaf0"
    assert first["nbytes"] == 2 * 15 * (16 << 20) // 16


def test_what_plays_no_links_says_whom_to_ask(printed):
    out = printed("simulate all_reduce --cluster dgx-h100:2 --size 16M --links")
    assert "# engine measured counts no links; add --engine simpy to see them" in out
    out = printed("simulate all_reduce --cluster star:256 --algorithm ring --size 16M --links")
    assert "# engine model counts no links; add --engine simpy to see them" in out


@pytest.mark.parametrize("cluster", ["star:1", "dgx-h100:1 --ranks 1 --engine simpy"])
def test_links_of_one_rank_carry_nothing_and_it_says_so(printed, cluster):
    out = printed(f"simulate all_reduce --cluster {cluster} --size 16M --links")
    assert "on 1 ranks\n# no link carries messages\n" in out


def test_nccls_channels_are_counted_each_on_its_own_wires(printed):
    out = printed(
        "simulate all_reduce --cluster dgx-h100:2 --size 16M --links --engine simpy --algorithm ring"
    )
    assert "3" in out[out.index("# busiest links of ring") :]
    assert "gpu0 -> gpu7" in out


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_picture_shows_who_is_busy(tmp_path, printed, ending):
    file = tmp_path / f"busy.{ending}"
    printed(f"{QUESTION} --algorithm ring --links --plot {file}")
    assert file.stat().st_size > 5000
    if ending == "svg":
        assert "busy share of the time" in file.read_text()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--size 1M --plot a.svg", "add --links"),
        ("--size 1M --links --plot a.txt", "not a picture format"),
        ("--size 1M --links --engine model --algorithm ring --plot a.svg", "engine model counts no links"),
        ("--links", "--links shows one size"),
        ("--size 1M --top 5", "add --links, or remove it"),
    ],
)
def test_what_cannot_be_counted_or_drawn_is_refused(tmp_path, refused, more, said):
    assert said in refused(f"simulate all_reduce --cluster star:4 {more}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("dgx-a100:2 --set nic=100GB/s", ["nic has no effect: pcie at 24 GB/s limits"]),
        (
            "dgx-a100:2 --set nic=100GB/s --library ideal --algorithm ring",
            ["nic has no effect: pcie at 24 GB/s limits"],
        ),
        ("dgx-a100:2 --set nic=20GB/s", []),
        (
            "dgx-h100:2 --set nic=25GB/s --algorithm tree",
            ["nic has no effect: NCCL's tuner gives the same time without it"],
        ),
        ("dgx-a100:2 --set nic=20GB/s --library ideal --algorithm ring", []),
        ("dgx-h100:1 --set nic=20GB/s", ["nic has no effect: nvlink at 370.8 GB/s limits"]),
        (
            "dgx-h100:1 --set nic=20GB/s --library ideal --algorithm ring",
            ["nic has no effect: every link is the same without it"],
        ),
        ("star:4 --set bandwidth=25GB/s", ["bandwidth has no effect: every link is the same without it"]),
        ("star:4 --set bandwidth=20GB/s --set latency=2us", []),
        ("leaf-spine:2 --set oversubscription=8", []),
        (
            "dgx-h100:2 --set nvlink=400GB/s --set pcie=60GB/s --library ideal --algorithm ring",
            ["nvlink has no effect: nic at 50 GB/s limits"],
        ),
    ],
)
def test_a_rate_without_effect_is_named_with_what_limits(question, said):
    answer = ask(f"simulate all_reduce --cluster {question} --size 16M --json")
    assert answer.get("no_effect", []) == said


def test_a_dear_question_is_decided_by_its_routes(monkeypatch):
    from ringside.sim.questions import idle_settings

    monkeypatch.setattr(idle_settings, "CHEAP_S", 0.0)
    words = (
        "simulate all_reduce --cluster dgx-a100:2 --library ideal --algorithm ring --size 16M --json --set"
    )
    assert ask(f"{words} nic=100GB/s")["no_effect"] == [
        "nic has no effect between neighbouring ranks: pcie at 24 GB/s limits"
    ]
    assert "no_effect" not in ask(f"{words} nic=20GB/s")


TEXT = DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "line", [line for line in TEXT.splitlines() if line.startswith("ringside ") and "3072" not in line]
)
def test_the_pages_examples_run(printed, line):
    assert printed(line.removeprefix("ringside "))


def test_the_pages_file_is_a_cluster(tmp_path, printed):
    file = tmp_path / "mine.yaml"
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
    file.write_text(text)
    content = json.loads(printed(f"topo {file} --json"))
    assert content["ranks"] == 128
    assert content["nodes"]["switch"] > 8
    assert "mine" in printed(f"simulate all_reduce --cluster {file} --library nccl --size 1M")
    assert printed(f"topo {file} --set oversubscription=1") != printed(f"topo {file}")
