"""Wrong and absurd command lines: each ends soon with its message and exit code, and harms no file."""

import json
import os
import re
import shlex
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringside.real.ddp.job import sleeping_layers
from ringside.sim.program.groups import TimedGroup
from ringside.sim.record import to_line
from ringside.sim.training.ddp.simulate import simulate_step
from tests.made_up import ddp_record, record
from tests.ringside.workloads import EVEN

PATIENCE_S = 10
DEVICES = ("/dev/null", "/dev/full", "/dev/zero")

TOPOLOGY = """
nodes:
  a: {kind: gpu, rank: 0}
  b: {kind: gpu, rank: 1}
cables:
  - {ends: [a, b], kind: ethernet, bandwidth: 1GB/s, latency: 5us}
"""
CALIBRATION = """
calibration: 1
cluster: c
topology: star
date: '2026-11-21'
sources: {}
fingerprint: {}
fits:
- library: ideal
  algorithm: ring
  protocol: auto
  parameters: {alpha: 2.0e-05, beta: 1.0e-09, gamma: 0.0, launch: 0.0}
  interval: {}
  fixed: {}
  band: [0.9, 1.1]
  rows: 7
  median_error: 0.01
  p90_error: 0.02
  worst: []
used: []
"""


def records(**changes):
    sizes = [2**power for power in range(10, 22, 2)]
    made = [record(**{"dtype": "", "nbytes": n, "time_s": 1e-4 + n * 2e-9, **changes}) for n in sizes]
    return "".join(f"{to_line(one)}\n" for one in made)


def steps():
    step = simulate_step(sleeping_layers(2), TimedGroup(2, lambda _: 1e-3))
    return ddp_record(sleeping_layers(2), 2, step).dumps()


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghij", "bcdefghijk", strict=True)
)
FILES = {
    "thesis.tex": "years of work\n",
    "t.yaml": TOPOLOGY,
    "w.yaml": EVEN,
    "c.yaml": CALIBRATION,
    "fit.jsonl": records(),
    "ddp.json": steps(),
    "nan.yaml": CALIBRATION.replace("alpha: 2.0e-05", "alpha: .nan"),
    "inf.yaml": CALIBRATION.replace("beta: 1.0e-09", "beta: .inf"),
    "negative.yaml": CALIBRATION.replace("launch: 0.0", "launch: -1"),
    "twice.yaml": CALIBRATION + "used: [a]\n",
    "band.yaml": CALIBRATION.replace("[0.9, 1.1]", "[1.1, 0.9]"),
    "old.yaml": CALIBRATION.replace("calibration: 1", "calibration: 0"),
    "deep.yaml": "maker: " + "[" * 200 + "]" * 200 + "\n",
    "deeper.yaml": "nodes: " + "{a: " * 200 + "1" + "}" * 200 + "\n",
    "bomb.yaml": BOMB + "maker: *k\n",
    "bomb2.yaml": BOMB + "nodes: *k\ncables: *k\n",
    "rate.yaml": TOPOLOGY.replace("1GB/s", "1e-300B/s"),
    "date.yaml": "maker: star\nranks: 2001-99-99\n",
    "digits.yaml": "maker: star\nranks: " + "9" * 5000 + "\n",
    "tag.yaml": "maker: !!python/object/apply:os.getcwd []\n",
    "self.yaml": "nodes: {a: {kind: gpu, rank: 0}}\ncables: [{ends: [a, a], kind: ib, bandwidth: 1GB/s}]\n",
    "nobody.yaml": "nodes: {a: {kind: switch}}\ncables: []\n",
    "island.yaml": "nodes: {a: {kind: gpu, rank: 0}, b: {kind: gpu, rank: 1}}\ncables: []\n",
    "segment.yaml": TOPOLOGY + "transport: {segment: 2K, window: 1K}\n",
    "empty.yaml": "",
    "null.yaml": "null\n",
    "latin.yaml": "name: Zürich\n".encode("latin-1"),
    "nul.yaml": b"maker: star\0\n",
    "tabs.yaml": "maker:\tstar\n\tranks: 2\n",
    "layers.yaml": EVEN.replace("10ms", "-10ms"),
    "count.yaml": EVEN.replace("2097152", "1" + "0" * 400),
    "batch.yaml": EVEN.replace("batch: 8", "batch: 0"),
    "gradient.yaml": EVEN.replace("[a]", "[c]"),
    "empty.jsonl": "",
    "blank.jsonl": "\n\n\n",
    "text.jsonl": "my thesis\n",
    "list.jsonl": "[1, 2]\n",
    "nan.jsonl": records().replace('"time_s": 0.', '"time_s": NaN, "x": 0.'),
    "inf.jsonl": records(time_s=1e999),
    "zero.jsonl": records(time_s=0.0),
    "negative.jsonl": records(time_s=-1.0),
    "ranks.jsonl": records(ranks=-4),
    "many.jsonl": records(ranks=2**23),
    "huge.jsonl": records(nbytes=2**63),
    "kind.jsonl": records().replace('"all_reduce"', '"all_reduces"'),
    "way.jsonl": records(algorithm="rings"),
    "cut.jsonl": records()[:-40],
    "two.jsonl": records() + records(cluster="d"),
    "few.jsonl": "".join(records().splitlines(keepends=True)[:2]),
    "deep.jsonl": '{"record": 1, "x": ' + "[" * 50_000 + "]" * 50_000 + "}\n",
    "digits.jsonl": '{"record": 1, "ranks": ' + "9" * 5000 + "}\n",
    "deep.json": "[" * 100_000,
    "rows.json": '{"rows": 3}\n',
    "results.json": '{"results": [{}]}\n',
    "scalar.json": "3\n",
    "ddp-nan.json": steps().replace('"gamma": 0.0', '"gamma": NaN'),
    "ddp-launch.json": steps().replace('"launch_s": 0.0', '"launch_s": -1.0', 1),
    "ddp-deep.json": '{"schema": "ringside.ddp/1", "steps": ' + "[" * 100_000,
    "ddp-zero.json": re.sub(r'"step_s": [0-9.]+', '"step_s": 0', steps()),
    "ddp-empty.json": '{"schema": "ringside.ddp/1"}\n',
    "ddp-none.json": json.dumps({**json.loads(steps()), "steps": []}),
    "ddp-wires.json": steps().replace("kind: gpu", "kind: toaster"),
    "graph.xml": "<graphs><graph></graphs>\n",
    "deep.xml": "<system>" * 5000,
    "bomb.xml": f'<!DOCTYPE x [<!ENTITY a "{"x" * 999}"><!ENTITY b "{"&a;" * 999}">]><system>&b;</system>',
    "matrix.txt": "\tGPU0\tGPU1\nGPU0\t X \tNV1\n",
    "nccl.log": "NCCL INFO nothing of use\n",
    "m.py": "def f():\n    return 3\ndef g():\n    raise SystemExit(0)\nx = (1, 2)\n",
    "syntax.py": "def f(:\n",
    "weird name é☃\u2028.yaml": "a: 1\n",
    "binary": bytes(range(256)) * 16,
}  # fmt: skip


ANSWERED = """
    topo star:4 -o /dev/null
    topo star:1
    topo star:4 --set bandwidth=1000000TB/s --set latency=0s
    topo star:4 --plot out.svg --schedule ring
    topo star:2 --nodes 2
    simulate all_reduce --cluster star --set ranks=8 -g 4 --size 1M
    topo t.yaml -o /dev/null --json
    simulate all_reduce --cluster star:4 --size 1M --trace /dev/null
    simulate all_reduce --cluster star:4 --size 0
    simulate all_reduce --cluster star:4 --size 0 --json
    simulate all_reduce --cluster star:1 --size 1M --json
    simulate all_gather --cluster star:4 --size 1P --engine model --set bandwidth=0.00001B/s --json
    simulate all_reduce --cluster star:4 --size 1 --set bandwidth=1000000TB/s --set latency=0s --json
    simulate all_to_all --cluster star:8192 --size 1M
    simulate all_reduce --cluster star:4 --size 1P --library gloo
    simulate all_reduce --cluster star:4 -b 1 -e 1P -f 1000000000000000000000
    simulate all_reduce --cluster star:4 --size 1M --redop mulsum
    simulate all_reduce --cluster dgx-h100:1000000 --size 1P --json
    simulate all_reduce --cluster dgx-h100:2 --size 0 --json
    simulate all_reduce --cluster h100-1gpu:1 --size 0 --json
    simulate all_reduce --cluster star:4 --size 1M --calibration c.yaml
    pick all_reduce --cluster star --nodes 1 -b 1K -e 1K
    pick all_reduce --cluster star --nodes 2,2,2 -b 1K -e 1K --json
    pick all_reduce --cluster dgx-h100 --nodes 1000000 -b 1K -e 1K --tuner-csv /dev/null
    goodput llama3-405b --failures 3/1e99days --trials 10
    goodput --nodes 1 --mtbf 1e9s --checkpoint 0s --interval 1us --trials 10 --json
    goodput --nodes 4 --failures 0/day --checkpoint 0s --trials 10 --json
    train --model w.yaml --cluster star:1 --json
    train --model w.yaml --cluster star:4 --trace /dev/null
    compare fit.jsonl --cluster star --json
    compare ddp.json --json
    calibrate fit.jsonl --cluster star -o /dev/null
"""  # fmt: skip

EXAMPLES = str(Path(__file__).parents[3] / "examples")
REFUSED = Path(__file__).with_name("refused.txt").read_text(encoding="utf-8").replace("{examples}", EXAMPLES)
LINES = [
    (line, 2, said) for line, _, said in (row.partition(" => ") for row in REFUSED.strip("\n").split("\n"))
]
LINES += [(line.strip(), 0, "") for line in ANSWERED.strip("\n").split("\n")]
LINES += [("compare fit.jsonl --cluster star --max-error 1%", 1, "")]


@contextmanager
def soon(seconds):
    """Fail a test that works too long on any machine, or waits forever."""

    def late(*_):
        raise AssertionError(f"took more than {seconds} s")

    clocks = (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, 6 * seconds),
    )
    before = [signal.signal(number, late) for _, number, _ in clocks]
    for clock, _, patience in clocks:
        signal.setitimer(clock, patience)
    try:
        yield
    finally:
        for (clock, number, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0)
            signal.signal(number, handler)


def snapshot(folder):
    """Return all files in a folder, with their content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        link = os.readlink(path) if path.is_symlink() else ""
        found[str(path.relative_to(folder))] = (status.st_mode, link, content)
    return found


def laid_out(folder):
    """Fill a folder with files of all kinds."""
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "folder").mkdir()
    (folder / "folder" / "mine").write_text("mine")
    (folder / "folder.yaml").mkdir()
    (folder / "folder.svg").mkdir()
    (folder / "link").symlink_to("thesis.tex")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return laid_out(tmp_path_factory.mktemp("desk"))


@pytest.mark.parametrize(("line", "expected", "message"), LINES, ids=[line[:90] for line, *_ in LINES])
def test_a_command_line_that_nobody_means(ringside, desk, monkeypatch, line, expected, message):
    monkeypatch.chdir(desk)
    # Python's own cache beside a model that is read
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before, devices = snapshot(desk), [os.stat(device).st_mode for device in DEVICES]
    with soon(PATIENCE_S):
        code, out, err = ringside(*shlex.split(line))
    after = snapshot(desk)
    for name in after.keys() - before.keys():
        (desk / name).unlink()
    assert code == expected, (code, out[-500:], err)
    assert "Traceback" not in out + err
    assert err.strip() or not code
    assert any(one in " ".join(err.replace("│", " ").split()) for one in message.split("|"))
    assert not (out and message)
    assert not {"inf", "nan", "Infinity", "NaN"} & set(out.replace(",", " ").split())
    assert after == before or not code
    assert {name: after[name] for name in before} == before
    assert [os.stat(device).st_mode for device in DEVICES] == devices


def test_there_are_enough_of_them():
    assert len(LINES) >= 900
    assert len({line for line, *_ in LINES}) == len(LINES)
