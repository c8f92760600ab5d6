"""Every command's first line is its answer, and at most two lines follow the table.

Commands that measure are those that need a second or two; `tests/ringside/commands` has the others.
"""

import re
import shlex
from pathlib import Path

import pytest

from ringside import console
from ringside.cli import COMMANDS
from tests.ringside.wrapping import unwrapped

ROOT = Path(__file__).parents[3]
LOGS = ROOT / "tests/validation/data"
PUBLISHED = ROOT / "validation/published"
TRACE = LOGS / "kineto/dlrm"

FIRST = {
    "topo": r"\d+ clusters by name",
    "topo star:4": r"star: 4 ranks, machines: 1",
    "topo star:4 --schedule ring": r"ring all_reduce on star:4, 4 ranks, proved",
    "topo dgx-h100:2 --channels": r"16 channels of NCCL",
    "simulate all_reduce --cluster dgx-h100:2 --size 64M": r"[\d.]+ us, [\d.]+ GB/s bus bandwidth: NCCL "
    r"takes \w+/\w+ on 16 channels \(calibrated; 4 of 5 runs lie in [\d.]+ us to [\d.]+ us\)$",
    "simulate all_reduce --cluster star:4 -b 1M -e 4M": r"[\d.]+ us for 1 MiB on 4 ranks, [\d.]+ us for 4 ",
    "simulate all_reduce --cluster star:4 --size 1M --jitter lognormal:0.1 --draws 3": r"With .* [\d.]+ us",
    "collectives --library gloo --prove 4": r"\d+ of \d+ ways proved",
    "experts --cluster dgx-h100:4 --tokens 512": r"[\d.]+ us for 512 tokens by \w+ \(\w+ \d+% longer\)$",
    "pick all_reduce --cluster dgx-h100 --nodes 2 -b 1M -e 64M": r"[\w/]+ wins \d of 7 sizes and node counts",
    "train --model resnet50 --cluster star:8": r"[\d.]+ ms a step, [\d,]+ samples/s: ddp of resnet50 on 8 ",
    "train --model gpt2 --cluster star:4 --strategy fsdp --batch 2": r"[\d.]+ ms a step, [\d.]+ samples/s, ",
    "train --model resnet50 --cluster star --sweep nodes=2,4": r"The step is shortest, [\d.]+ ms",
    "train --model gpt2:128 --cluster star:2 --search --global-batch 4": r"the best takes [\d.]+ ms: --",
    "whatif all_reduce --cluster star:4 --size 64M --try bandwidth=2x": r"bandwidth=2x helps most: 2x as ",
    "goodput bloom-176b --trials 10": r"9\d.\d% goodput with a checkpoint every 94.2 min",
    "goodput": r"\d+ published trainings",
    f"calibrate {PUBLISHED}/abci2_a100_all_reduce_n2_r16.json --cluster abci-a100 -o c.yaml": "median error",
    f"compare {PUBLISHED}/oke_a100_n2_r16.json --cluster dgx-a100:2": r"Predictions are off by [\d.]+% ",
    "expect all_reduce --cluster dgx-h100:2": r"a healthy dgx-h100:2 reaches [\d.]+ GB/s of bus bandwidth",
    f"explain {LOGS}/v2.19_nccl_debug.log --cluster dgx-h100:1": r"(slower than|no anomaly|cannot tell)",
    "pairs pairs.csv": r"slow nodes: none; slow pairs of normal nodes: none",
    "scorecard training --table korthikanti": r"median error [\d.]+% over 4 rows",
    f"sweep {ROOT}/examples/study.yaml --dry-run": r"[\d,]+ points, about ",
    f"program {ROOT}/examples/both_send_first.py -g 2 --library nccl": r"\S+ on 2 ranks of nccl: unsafe",
    f"program {ROOT}/examples/halo_exchange.py -g 4 --cluster star:4": r"[\d.]+ \w?s: \S+ on 4 ranks of \w+ ",
    f"trace {TRACE}": r"communication takes 41.4% of all ranks' time",
    "measure compute --size 64 --sequence 64 --stream 64K --seconds 0.01 -o r.json": r".* up to [\d.]+ GFL",
}
"""The beginning of the first line of a command's answer."""

ELSEWHERE = {
    "measure", "measure ddp", "measure train", "measure elastic", "record", "validate", "validate ddp",
    "validate memory", "validate training", "validate recordings", "validate disturbances", "demo",
    "serve",
}  # fmt: skip
"""Commands that run processes: their answers are printed by the same function."""

PAIRS = "node_a,node_b,size_bytes,time_us\n" + "".join(
    f"n{a},n{b},1048576,{100 + (a * 7 + b * 3) % 5}\n" for a in range(6) for b in range(a + 1, 6)
)


@pytest.mark.parametrize("line", FIRST)
def test_the_first_line_is_the_answer_and_two_at_most_end_it(on_screen, tmp_path, line):
    (tmp_path / "pairs.csv").write_text(PAIRS, encoding="utf-8")
    _, out, err = on_screen(*shlex.split(line))
    first, *lines = unwrapped(out).splitlines()
    assert re.match(f"# {FIRST[line]}", first), (first, err)
    last = max([number for number, text in enumerate(lines) if not text.startswith("#")], default=-1)
    assert len(lines[last + 1 :]) <= console.MOST_GROUNDS, lines[last + 1 :]


def test_every_command_is_here_or_runs_processes():
    named = {" ".join(line.split()[:words]) for line in FIRST for words in (1, 2)}
    assert COMMANDS.keys() - named == ELSEWHERE - {"measure"}


def test_more_than_two_grounds_are_a_defect(capsys):
    with pytest.raises(AssertionError):
        console.print_answer("1 us", rests_on=["a", "b", "c"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "doubt"),
    [
        ("simulate all_reduce --cluster dgx-a100:64 --size 1G", "extrapolated from dgx-a100"),
        ("simulate all_reduce --cluster gcp-a3mega:2 --size 1M", "no measurement of gcp-a3mega is shipped"),
        ("train --model llama3-70b --cluster dgx-h100:1 --tp 8", "DOES NOT FIT into a GPU"),
        ("whatif llama3-8b --cluster dgx-h100:8 --try nic=0.5x", "the training DOES NOT FIT into a GPU"),
        ("train --model resnet50 --cluster gcp-a3mega:2", "not calibrated by any measurement"),
    ],
)
def test_what_leaves_an_answer_in_doubt_is_printed_without_v(on_screen, line, doubt):
    _, out, _ = on_screen(*shlex.split(line))
    assert doubt in unwrapped(out)


def test_notes_are_printed_with_v_alone(on_screen):
    line = shlex.split("simulate all_reduce --cluster dgx-h100:2 --size 64M")
    _, short, _ = on_screen(*line)
    _, whole, _ = on_screen("-v", *line)
    assert "remaining columns" not in short
    assert "remaining columns" in whole
    assert whole.startswith(short)
