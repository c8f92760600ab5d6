"""Command lines that nobody means: each ends in words and its exit code, soon, and harms no file."""

import json
import os
import re
import shlex
import signal
import sys
from contextlib import contextmanager

import pytest

from ringside.sim.record import Record, to_line
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.record import DdpRecord, MeasuredNetwork
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.groups import TimedGroup
from ringside.topologies import star
from ringside.topologies.file import dumps
from ringside.validation.emulated.training import sleeping_layers

PATIENCE_S = 10
DEVICES = ("/dev/null", "/dev/full", "/dev/zero")

TOPOLOGY = """
nodes:
  a: {kind: gpu, rank: 0}
  b: {kind: gpu, rank: 1}
cables:
  - {ends: [a, b], kind: ethernet, bandwidth: 1GB/s, latency: 5us}
"""
WORKLOAD = """
name: even
batch: 8
parameters: {a: {count: 2097152}, b: {count: 2097152}}
layers:
  - {name: two, forward: 10ms, backward: 20ms, gradients: [b]}
  - {name: one, forward: 10ms, backward: 20ms, gradients: [a]}
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
    common = {"source": "t", "cluster": "c", "library": "ideal", "collective": "all_reduce",
              "algorithm": "ring", "num_nodes": 1, "ranks": 4, "statistic": "median"}  # fmt: skip
    sizes = [2**power for power in range(10, 22, 2)]
    made = [Record(**{**common, "nbytes": n, "time_s": 1e-4 + n * 2e-9, **changes}) for n in sizes]
    return "".join(f"{to_line(record)}\n" for record in made)


def steps():
    group = TimedGroup(2, lambda _: 1e-3)
    step = simulate_step(sleeping_layers(2), group)
    return DdpRecord(
        workload=sleeping_layers(2), ranks=2, ddp=DataParallel(), workers=2,
        wires=MeasuredNetwork(topology=dumps(star(2)), library="ideal"), memory_bandwidth=None, steps=(step,),
        fingerprint={},
    ).dumps()  # fmt: skip


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghij", "bcdefghijk", strict=True)
)
FILES = {
    "thesis.tex": "years of work\n",
    "t.yaml": TOPOLOGY,
    "w.yaml": WORKLOAD,
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
    "layers.yaml": WORKLOAD.replace("10ms", "-10ms"),
    "count.yaml": WORKLOAD.replace("2097152", "1" + "0" * 400),
    "batch.yaml": WORKLOAD.replace("batch: 8", "batch: 0"),
    "gradient.yaml": WORKLOAD.replace("[a]", "[c]"),
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


REFUSED = {
    "topo": """
        nothing
        ''
        :
        star:
        star:0
        star:-1
        star:1.5
        star:1e3
        star:٣x
        star:99999999999999999999999999
        star:262145
        star:8:8
        dgx-h100:8193
        leaf-spine:1048576
        STAR:4
        'star :4'
        --nodes 4
        --plot x.svg
        -o x.yaml
        --schedule ring
        --set bandwidth=1GB/s
        star --nodes 0
        star --nodes -3
        star --nodes x
        star:4 --set bandwidth=1e-300B/s
        star:4 --set bandwidth=1e300B/s
        star:4 --set bandwidth=nanGB/s
        star:4 --set bandwidth=infGB/s
        star:4 --set bandwidth=1GB/s --set bandwidth=2GB/s
        star:4 --set bandwidth=
        star:4 --set ''
        star:4 --set latency=1e300s
        star:4 --set latency=1e10s
        star:4 --set ranks=5
        star --set ranks=5 --nodes 4
        star:4 --set 'bandwidth =1GB/s'
        leaf-spine:2 --set oversubscription=0
        leaf-spine:2 --set oversubscription=nan
        leaf-spine:2 --set oversubscription=inf
        leaf-spine:2 --set oversubscription=1e300
        leaf-spine:2 --set hosts_per_leaf=100000
        leaf-spine:2 --set hosts_per_leaf=-1
        star:1 --schedule ring --plot x.svg
        star:1 --schedule ring
        h100-1gpu:1 --schedule ring
        star:4 --schedule rings
        star:4 --schedule ''
        star:8192 --schedule ring
        dgx-h100:2 --schedule nvls
        star:4 --plot x
        star:4 --plot x.bmp
        star:4 --plot .svg
        star:4 --plot no/x.svg
        star:4 --plot folder/
        star:4 --plot /dev/null
        star:4 -o folder
        star:4 -o loop
        star:4 -o /dev/full
        star:4 -o pipe
        star:4 -o no/such/folder/x.yaml
        star:4 -o thesis.tex/x.yaml
        star:4 -o x.svg --plot x.svg
        star:4 -o ''
        t.yaml -o t.yaml
        t.yaml --set bandwidth=1GB/s
        t.yaml --nodes 2
        t.yaml:2
        missing.yaml
        folder
        folder.yaml
        /dev/null
        /dev/zero
        pipe
        binary
        deep.yaml
        deeper.yaml
        bomb.yaml
        bomb2.yaml
        rate.yaml
        date.yaml
        digits.yaml
        tag.yaml
        self.yaml
        nobody.yaml
        island.yaml
        segment.yaml
        empty.yaml
        null.yaml
        latin.yaml
        nul.yaml
        tabs.yaml
        c.yaml
        w.yaml
        graph.xml
        deep.xml
        bomb.xml
        'weird name é☃\u2028.yaml'
    """,
    "simulate": """
        all_reduce
        --cluster star:4
        '' --cluster star:4 --size 1M
        all_reduce --cluster ''
        all_reduce --cluster star:4 --size nan
        all_reduce --cluster star:4 --size inf
        all_reduce --cluster star:4 --size ''
        all_reduce --cluster star:4 --size ' '
        all_reduce --cluster star:4 --size -0.5
        all_reduce --cluster star:4 --size 1e400
        all_reduce --cluster star:4 --size 1E
        all_reduce --cluster star:4 --size 1P1P
        all_reduce --cluster star:4 --size 1МB
        all_reduce --cluster star:4 --size 1M -b 1K
        all_reduce --cluster star:4 --size 1M -f 4
        all_reduce --cluster star:4 -b 1M -e 1K
        all_reduce --cluster star:4 -b -1 -e 1K
        all_reduce --cluster star:4 -f 0
        all_reduce --cluster star:4 -f -2
        all_reduce --cluster star:4 -f 1.5
        all_reduce --cluster star:4 --size 1M -g 0
        all_reduce --cluster star:4 --size 1M -g -4
        all_reduce --cluster star:4 --size 1M -g 5
        all_reduce --cluster star:4 --size 1M -g 99999999999999999999
        all_reduce --cluster star:4 --size 1M -g four
        all_reduce --cluster dgx-h100:2 --size 1M -g 3
        all_reduce --cluster dgx-h100:2 --size 1M -g 99999999999999999999
        all_reduce --cluster dgx-h100:0 --size 1M
        all_reduce --cluster dgx-h100:-1 --size 1M
        all_reduce --cluster dgx-h100:x --size 1M
        all_to_all --cluster star:4 --size 1P -g 4 --engine simpys
        all_reduce --cluster star:4 --size 1M --library ''
        all_reduce --cluster star:4 --size 1M --library NCCL
        all_reduce --cluster star:4 --size 1M --library nccl
        all_reduce --cluster star:4 --size 1M --algorithm ''
        all_reduce --cluster star:4 --size 1M --algorithm ring,nonsense
        all_reduce --cluster star:4 --size 1M --protocol simple
        all_reduce --cluster star:4 --size 1M --network packets
        all_reduce --cluster star:4 --size 1M --dtype ''
        all_reduce --cluster star:4 --size 1M --redop nonsense
        all_reduce --cluster star:4 --size 1M --redop ''
        all_reduce --cluster star:4 --size 1M --nccl-version 1.0
        all_reduce --cluster star:4 --size 1M --nccl-version 2.30
        all_reduce --cluster star:4 --size 1M --nccl-graph nothere
        all_reduce --cluster star:4 --size 1M --library gloo --nccl-graph nothere
        all_reduce --cluster star:4 --size 1M --library gloo --nccl-version 2.29
        all_reduce --cluster star:4 --size 1M --library gloo --algorithm tree
        gather --cluster star:4 --size 1M --library gloo --algorithm tree
        all_reduce --cluster dgx-h100:2 --size 1M --redop nonsense
        all_reduce --cluster dgx-h100:2 --size 1M --nccl-version nan
        all_reduce --cluster dgx-h100:2 --size 1M --nccl-graph nothere
        all_reduce --cluster dgx-h100:2 --size 1M --nccl-graph folder
        all_reduce --cluster dgx-h100:2 --size 1M --nccl-graph /dev/zero
        all_reduce --cluster dgx-h100:2 --size 1M --nccl-graph pipe
        all_reduce --cluster dgx-h100:2 --size 1M --nccl-graph binary
        all_reduce --cluster dgx-h100:2 --size 1M --nccl-graph graph.xml
        all_reduce --cluster dgx-h100:2 --size 1M --nccl-graph deep.xml
        all_reduce --cluster dgx-h100:2 --size 1M --nccl-graph nccl.log
        all_reduce --cluster dgx-h100:2 --size 1M --calibration c.yaml
        all_reduce --cluster dgx-h100:2 --size 1M --engine quick
        all_reduce --cluster dgx-h100:2 --size 1M --trace x.json
        all_reduce --cluster dgx-h100:2 --size 1M --algorithm 'tree;ring'
        all_reduce --cluster dgx-h100:2 --size 1M --algorithm ^tree,ring,nvlstree,nvls
        all_reduce --cluster dgx-h100:2 --size 1M --set bandwidth=1GB/s
        all_reduce --cluster dgx-h100:2 --size 1M --set nic=1GB/s --set nic=2GB/s
        all_reduce --cluster dgx-h100:2 --size 1M --set nic=1e-300B/s
        all_reduce --cluster dgx-h100:2 --size 1M --set nic=0B/s
        all_reduce --cluster dgx-h100:2 --size 1P --algorithm ring --engine simpy
        all_reduce --cluster star:4 --size 1M --set bandwidth=1e-300B/s
        all_reduce --cluster star:4 --size 1M --set latency=1e10s
        all_reduce --cluster star:1048576 --size 1M
        all_to_all --cluster star:16384 --size 1P
        all_reduce --cluster leaf-spine:512 --size 1M --algorithm direct
        all_reduce --cluster star:64 --size 1P --library gloo --engine simpy
        all_reduce --cluster star:4 --size 1M --calibration nan.yaml
        all_reduce --cluster star:4 --size 1M --calibration inf.yaml
        all_reduce --cluster star:4 --size 1M --calibration negative.yaml
        all_reduce --cluster star:4 --size 1M --calibration twice.yaml
        all_reduce --cluster star:4 --size 1M --calibration band.yaml
        all_reduce --cluster star:4 --size 1M --calibration old.yaml
        all_reduce --cluster star:4 --size 1M --calibration deep.yaml
        all_reduce --cluster star:4 --size 1M --calibration bomb.yaml
        all_reduce --cluster star:4 --size 1M --calibration folder
        all_reduce --cluster star:4 --size 1M --calibration /dev/zero
        all_reduce --cluster star:4 --size 1M --calibration pipe
        all_reduce --cluster star:4 --size 1M --calibration ''
        all_reduce --cluster star:4 --size 1M --calibration t.yaml
        all_reduce --cluster star:4 --size 1M --calibration c.yaml --algorithm tree
        all_reduce --cluster star:4 --size 1M --calibration c.yaml --library gloo
        all_reduce --cluster star:4 --size 1M --calibration c.yaml --trace c.yaml
        all_reduce --cluster t.yaml --size 1M --trace t.yaml
        all_reduce --cluster star:4 --size 1M --trace folder
        all_reduce --cluster star:4 --size 1M --trace loop
        all_reduce --cluster star:4 --size 1M --trace /dev/full
        all_reduce --cluster star:4 --size 1M --trace no/such/x.json
        all_reduce --cluster star:4 --trace x.json
        all_reduce --cluster star:4 --size 1M --unknown
        all_reduce all_gather --cluster star:4 --size 1M
        all_reduce --cluster star:4 --cluster
    """,
    "pick": """
        all_reduce --cluster dgx-h100
        all_reduce --cluster dgx-h100 --nodes ''
        all_reduce --cluster dgx-h100 --nodes ,
        all_reduce --cluster dgx-h100 --nodes 1,,2
        all_reduce --cluster dgx-h100 --nodes -1
        all_reduce --cluster dgx-h100 --nodes 1.5
        all_reduce --cluster dgx-h100 --nodes nan
        all_reduce --cluster dgx-h100 --nodes ²
        all_reduce --cluster star --nodes 0
        all_reduce --cluster star:4 --nodes 8
        all_reduce --cluster star --nodes 1048576
        all_reduce --cluster star --nodes 4 --algorithm ring
        all_reduce --cluster star --nodes 4 --times pipeline
        all_reduce --cluster star --nodes 4 --protocol ll
        all_reduce --cluster star --nodes 4 --nccl-version 2.30
        all_reduce --cluster star --nodes 4 --nccl-graph nothere
        all_reduce --cluster star --nodes 4 --redop nonsense
        all_reduce --cluster star --nodes 4 --dtype nonsense
        all_reduce --cluster star --nodes 4 --library gloo
        all_reduce --cluster star --nodes 4 --tuner-csv x.csv
        all_to_all --cluster leaf-spine --nodes 512 -b 1M -e 1M
        all_reduce --cluster dgx-h100 --nodes 1 --dtype nonsense
        all_reduce --cluster dgx-h100 --nodes 1 --times ''
        all_reduce --cluster dgx-h100 --nodes 1 -b 2M -e 1M
        all_reduce --cluster dgx-h100 --nodes 1 -b nan
        all_to_all --cluster dgx-h100 --nodes 1
        all_reduce --cluster dgx-h100 --nodes 1 --plot x.gif
        all_reduce --cluster dgx-h100 --nodes 1 --plot no/x.svg
        all_reduce --cluster dgx-h100 --nodes 1 --plot x.svg --tuner-csv x.svg
        all_reduce --cluster dgx-h100 --nodes 1 --tuner-csv /dev/full
        all_reduce --cluster dgx-h100 --nodes 1 --tuner-csv folder
        all_reduce --cluster dgx-h100 --nodes 1 --tuner-csv graph.xml --nccl-graph graph.xml
        all_reduce --cluster deep.yaml --nodes 1
        all_reduce --cluster dgx-h100 --nodes 1 --set nic=fast
    """,
    "whatif": """
        ''
        all_reduce --cluster star:4 --try ''
        all_reduce --cluster star:4 --try ,
        all_reduce --cluster star:4 --try =2x
        all_reduce --cluster star:4 --try bandwidth=x
        all_reduce --cluster star:4 --try bandwidth=infx
        all_reduce --cluster star:4 --try nodes=99999999999999999999
        all_reduce --cluster star:4 --try nodes=٣
        all_reduce --cluster star:4 --size -1
        all_reduce --cluster folder
    """,
    "goodput": """
        ''
        llama3-405b llama3-405b
        LLAMA3-405B
        llama3-405b --nodes 1.5
        llama3-405b --nodes 99999999999999999999
        llama3-405b --nodes 16
        llama3-405b --interval ''
        llama3-405b --interval 1e400s
        llama3-405b --interval 1ps
        llama3-405b --work ''
        llama3-405b --checkpoint ' '
        llama3-405b --mtbf ''
        llama3-405b --mtbf 1ns
        llama3-405b --failures ''
        llama3-405b --failures ,
        llama3-405b --failures =
        llama3-405b --failures x=
        llama3-405b --failures 1e999/day
        llama3-405b --failures ٣/day
        llama3-405b --trials 0
        llama3-405b --trials 99999999
        llama3-405b --seed x
        llama3-405b --step -1s
        llama3-405b --repair 1e9d
        llama3-405b --replica -1
        llama3-405b --gpus-per-node 0
        llama3-405b --plot no/x.svg
        llama3-405b --plot folder/
        --json --plot x.bmp
        --plot x.svg
        --trials 10
        --interval 5min
        --nodes 4 --mtbf 1us --checkpoint 1s
        --nodes 4 --mtbf 1min --checkpoint 1h --restart 1d
    """,
    "train": """
        --model resnet50
        --cluster star:4
        --model '' --cluster star:4
        --model resnet51 --cluster star:4
        --model resnet50:x --cluster star:4
        --model resnet50:-1 --cluster star:4
        --model gpt2:99999999999999999999 --cluster star:4
        --model missing.yaml --cluster star:4
        --model folder --cluster star:4
        --model /dev/zero --cluster star:4
        --model pipe --cluster star:4
        --model binary --cluster star:4
        --model t.yaml --cluster star:4
        --model deep.yaml --cluster star:4
        --model bomb.yaml --cluster star:4
        --model layers.yaml --cluster star:4
        --model count.yaml --cluster star:4
        --model batch.yaml --cluster star:4
        --model gradient.yaml --cluster star:4
        --model ddp-nan.json --cluster star:4
        --model ddp-deep.json --cluster star:4
        --model w.yaml --cluster star:4 --dtype float16
        --model m.py --cluster star:4
        --model m.py:f --cluster star:4
        --model m.py:g --cluster star:4
        --model m.py:x --cluster star:4
        --model m.py:none --cluster star:4
        --model syntax.py:f --cluster star:4
        --model w.yaml --cluster star:4 --batch 0
        --model w.yaml --cluster star:4 --batch -1
        --model w.yaml --cluster star:4 --batch 1000000000000000000000000000000
        --model resnet50 --cluster star:4 --batch 1000000000000000000000000000000
        --model w.yaml --cluster star:4 --bucket-cap-mb nan
        --model w.yaml --cluster star:4 --bucket-cap-mb inf
        --model w.yaml --cluster star:4 --bucket-cap-mb -1
        --model w.yaml --cluster star:4 --bucket-cap-mb 1e300
        --model w.yaml --cluster star:4 --contention nan
        --model w.yaml --cluster star:4 --contention 1
        --model w.yaml --cluster star:4 --contention -0.1
        --model w.yaml --cluster star:4 --accumulation 0
        --model w.yaml --cluster star:4 --accumulation 1000000000000
        --model w.yaml --cluster star:4 --straggler 0
        --model w.yaml --cluster star:4 --straggler 0=nan
        --model w.yaml --cluster star:4 --straggler 0=inf
        --model w.yaml --cluster star:4 --straggler 0=-1
        --model w.yaml --cluster star:4 --straggler 0=1e300
        --model w.yaml --cluster star:4 --straggler 4=2
        --model w.yaml --cluster star:4 --straggler -1=2
        --model w.yaml --cluster star:4 --straggler 0=2 --straggler 0=3
        --model w.yaml --cluster star:4 --sweep nodes
        --model w.yaml --cluster star:4 --sweep nodes=1,2
        --model w.yaml --cluster star --sweep nodes=0
        --model w.yaml --cluster star --sweep nodes=1.5
        --model w.yaml --cluster star --sweep nodes=1e300
        --model w.yaml --cluster star:4 --sweep bucket-cap-mb=nan
        --model w.yaml --cluster star:4 --sweep bucket-cap-mb=1e300
        --model w.yaml --cluster star:4 --sweep bucket-cap-mb=1,1
        --model w.yaml --cluster star:4 --sweep bucket-cap-mb=1 --bucket-cap-mb 2
        --model w.yaml --cluster star:4 --sweep bucket-cap-mb=1,2 --trace x.json
        --model w.yaml --cluster star:4 --strategy zero
        --model w.yaml --cluster star:4 --strategy fsdp --micro-batch 0
        --model w.yaml --cluster star:4 --strategy fsdp --micro-batch -1
        --model w.yaml --cluster star:4 --tp 2
        --model w.yaml --cluster star:4 --pp 0
        --model w.yaml --cluster star:4 --pp 99999999999999999999
        --model w.yaml --cluster star:1 --strategy fsdp
        --model w.yaml --cluster star:4 --strategy fsdp --library mpi
        --model mixtral-8x7b --cluster star:4 --ep 0
        --model mixtral-8x7b --cluster star:4 --ep -2
        --model mixtral-8x7b --cluster star:4 --ep 99999999999999999999
        --model mixtral-8x7b --cluster star:4 --ep 4 --ep-imbalance nan
        --model mixtral-8x7b --cluster star:4 --ep 4 --ep-imbalance inf
        --model mixtral-8x7b --cluster star:4 --ep 4 --capacity-factor -1
        --model mixtral-8x7b --cluster star:4 --ep 4 --capacity-factor 1e300
        --model mixtral-8x7b --cluster star:4 --ep-imbalance 2
        --model gpt2 --cluster star:4 --ep-imbalance 0.5
        --model vit-b-16:17 --cluster star:4
        --model vit-b-16:0 --cluster star:4
        --model gpt2 --cluster star:4 --tp 4 --seq 0
        --model gpt2:256 --cluster star:4 --tp 4 --seq 256
        --model gpt2 --cluster star:4 --pp 2 --virtual 0
        --model gpt2 --cluster star:4 --pp 2 --schedule ''
        --model w.yaml --cluster star:4 --optimizer none
        --model w.yaml --cluster star:4 --comm-hook topk
        --model w.yaml --cluster star:4 --device abacus
        --model w.yaml --cluster star:4 --library mpich
        --model resnet50 --cluster star:4 --precision float7
        --model resnet50 --cluster star:4 --dtype float7
        --model w.yaml --cluster star:4 -g 0
        --model w.yaml --cluster star:4 -g 5
        --model w.yaml --cluster dgx-h100:0
        --model w.yaml --cluster dgx-h100:2 -g 3
        --model w.yaml --cluster dgx-h100:2 --set latency=1us
        --model w.yaml --cluster star:4 --plot x.svg --trace x.svg
        --model w.yaml --cluster star:4 --trace w.yaml
        --model w.yaml --cluster star:4 --trace /dev/full
        --model w.yaml --cluster star:4 --plot x.jpeg
    """,
    "calibrate": """
        fit.jsonl
        --cluster star -o x.yaml
        fit.jsonl --cluster star
        fit.jsonl --cluster star -o fit.jsonl
        fit.jsonl --cluster t.yaml -o t.yaml
        fit.jsonl --cluster star -o folder
        fit.jsonl --cluster star -o /dev/full
        fit.jsonl --cluster star -o no/x.yaml
        fit.jsonl --cluster star -o loop
        fit.jsonl --cluster stern -o x.yaml
        fit.jsonl --cluster star:2 -o x.yaml
        fit.jsonl --cluster t.yaml -o x.yaml
        fit.jsonl missing.jsonl --cluster star -o x.yaml
        folder --cluster star -o x.yaml
        /dev/zero --cluster star -o x.yaml
        pipe --cluster star -o x.yaml
        empty.jsonl --cluster star -o x.yaml
        blank.jsonl --cluster star -o x.yaml
        text.jsonl --cluster star -o x.yaml
        list.jsonl --cluster star -o x.yaml
        nan.jsonl --cluster star -o x.yaml
        inf.jsonl --cluster star -o x.yaml
        zero.jsonl --cluster star -o x.yaml
        negative.jsonl --cluster star -o x.yaml
        ranks.jsonl --cluster star -o x.yaml
        many.jsonl --cluster star -o x.yaml
        huge.jsonl --cluster star -o x.yaml
        kind.jsonl --cluster star -o x.yaml
        way.jsonl --cluster star -o x.yaml
        cut.jsonl --cluster star -o x.yaml
        two.jsonl --cluster star -o x.yaml
        few.jsonl --cluster star -o x.yaml
        deep.jsonl --cluster star -o x.yaml
        digits.jsonl --cluster star -o x.yaml
        deep.json --cluster star -o x.yaml
        rows.json --cluster star -o x.yaml
        results.json --cluster star -o x.yaml
        scalar.json --cluster star -o x.yaml
        binary --cluster star -o x.yaml
        c.yaml --cluster star -o x.yaml
        ddp.json --cluster star -o x.yaml
        fit.jsonl --cluster star -o x.yaml --set bandwidth=1GB/s --set bandwidth=1GB/s
    """,
    "compare": """
        fit.jsonl
        --cluster star
        fit.jsonl --cluster star --calibration nan.yaml --max-error 10%
        fit.jsonl --cluster star --calibration negative.yaml
        fit.jsonl --cluster star --calibration missing.yaml
        fit.jsonl --cluster star --max-error 10
        fit.jsonl --cluster star --max-error nan%
        fit.jsonl --cluster star --max-error -1%
        fit.jsonl --cluster star --max-error inf%
        fit.jsonl --cluster star --max-error ''
        fit.jsonl --cluster star --max-error %
        fit.jsonl --cluster star --plot x.bmp
        fit.jsonl --cluster star --plot no/x.svg
        fit.jsonl --cluster star --plot folder.svg
        fit.jsonl --cluster star:2
        fit.jsonl --cluster ''
        nan.jsonl --cluster star --max-error 10%
        inf.jsonl --cluster star
        deep.jsonl --cluster star
        two.jsonl --cluster star
        fit.jsonl /dev/zero --cluster star
        fit.jsonl pipe --cluster star
        fit.jsonl folder --cluster star
        ddp.json --cluster star
        ddp.json --calibration c.yaml
        ddp.json --set bandwidth=1GB/s
        ddp.json fit.jsonl
        ddp.json missing.json
        ddp-nan.json --max-error 10%
        ddp-launch.json
        ddp-deep.json
        ddp-empty.json
        ddp-none.json
        ddp-zero.json
        ddp-wires.json
    """,
    "measure": """
        all_reduce
        -o x.jsonl
        '' -o x.jsonl
        all_reduces -o x.jsonl
        all_reduce -o ''
        all_reduce -o folder
        all_reduce -o loop
        all_reduce -o no/x.jsonl
        all_reduce -o thesis.tex
        all_reduce -o link
        all_reduce -o cut.jsonl
        all_reduce -o binary
        all_reduce -o x.jsonl -g 0
        all_reduce -o x.jsonl -g -1
        all_reduce -o x.jsonl -g 100000
        all_reduce -o x.jsonl -g 99999999999999999999
        all_reduce -o x.jsonl -g x
        all_reduce -o x.jsonl --size 1P
        all_reduce -o x.jsonl --size nan
        all_reduce -o x.jsonl --size 1M -b 1K
        all_reduce -o x.jsonl -b 1M -e 1K
        all_reduce -o x.jsonl -n 0
        all_reduce -o x.jsonl -n -1
        all_reduce -o x.jsonl -n 1000000000000
        all_reduce -o x.jsonl -w -1
        all_reduce -o x.jsonl -w 1000000000000
        all_reduce -o x.jsonl --timeout nan
        all_reduce -o x.jsonl --timeout 0
        all_reduce -o x.jsonl --timeout inf
        all_reduce -o x.jsonl --timeout 1e300
        all_reduce -o x.jsonl --backend mpich
        all_reduce -o x.jsonl --algorithm rings
        all_reduce -o x.jsonl --algorithm ping_pong
        all_reduce -o x.jsonl --dtype ''
        all_reduce -o x.jsonl --nnodes 0
        all_reduce -o x.jsonl --nnodes 2
        all_reduce -o x.jsonl --nnodes 2 --rdzv-endpoint :
        all_reduce -o x.jsonl --rdzv-endpoint host:x
        all_reduce -o x.jsonl --torchrun
        all_reduce -o x.jsonl --set bandwidth=1GB/s
        all_reduce -o x.jsonl --emulate stern:4
        all_reduce -o x.jsonl --emulate star:1000
        all_reduce -o x.jsonl --emulate star:4 --backend nccl
        all_reduce -o x.jsonl --emulate star:4 --nnodes 2
        all_reduce -o x.jsonl --emulate deep.yaml
        all_reduce -o t.yaml --emulate t.yaml
        all_reduce -o x.jsonl --plot x.svg
        gather -o x.jsonl --algorithm tree
        ddp -o x.json -g 0
        ddp -o x.json -g 100000
        ddp -o x.json -n 0
        ddp -o x.json -n 1000000000000
        ddp -o x.json --workers 0
        ddp -o x.json --bucket-cap-mb nan
        ddp -o x.json --timeout nan
        ddp -o x.json --backend mpi
        ddp -o x.json --model missing.yaml
        ddp -o x.json --model deep.yaml
        ddp -o x.json --model m.py:f
        ddp -o x.json --model syntax.py:f
        ddp -o x.json --trace x.json
        ddp -o x.json --plot x.bmp
        ddp -o thesis.tex
        ddp -o fit.jsonl
        ddp -o w.yaml --model w.yaml
        ddp -o ddp.json --model ddp.json
        ddp -o folder
        ddp -o x.json --set bandwidth=1GB/s
        ddp -o x.json --size 1M
    """,
    "validate": """
        weather
        ''
        ddp collectives
        --plot x.bmp
        --plot no/x.svg
        --plot folder.svg
        ddp --plot x.bmp
        --short=maybe
    """,
    "demo": """
        -o thesis.tex
        -o folder
        -o loop
        -o pipe
        -o /dev/null
        -o thesis.tex/x
        extra
        -o
    """,
    "": """
        nothing
        --nothing
    """,
}

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

LINES = [
    (f"{command} {line.strip()}".strip(), 2)
    for command, block in REFUSED.items()
    for line in block.strip("\n").split("\n")
    if line.strip()
]
LINES += [(line.strip(), 0) for line in ANSWERED.strip("\n").split("\n") if line.strip()]
LINES += [("compare fit.jsonl --cluster star --max-error 1%", 1)]


@contextmanager
def soon(seconds):
    """Fail what works longer, on whatever busy machine, or waits without end."""

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
    """All that lies in a folder, and what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        link = os.readlink(path) if path.is_symlink() else ""
        found[str(path.relative_to(folder))] = (status.st_mode, link, content)
    return found


def laid_out(folder):
    """The folder, full of all sorts of files."""
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


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line[:90] for line, _ in LINES])
def test_a_command_line_that_nobody_means(ringside, desk, monkeypatch, line, expected):
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
    assert not {"inf", "nan", "Infinity", "NaN"} & set(out.replace(",", " ").split())
    assert after == before or not code
    assert {name: after[name] for name in before} == before
    assert [os.stat(device).st_mode for device in DEVICES] == devices


def test_there_are_enough_of_them():
    assert len(LINES) >= 270
    assert len({line for line, _ in LINES}) == len(LINES)
