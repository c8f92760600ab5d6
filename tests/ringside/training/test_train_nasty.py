"""``ringside train`` with wrong input: a clear error, or an answer with valid numbers."""

import json
import math
import shlex
import sys

import pytest

from ringside.cli import main

FILE = """
name: x
batch: 4
parameters: {a: {count: 1000}}
layers: [{name: l, forward: 1ms, backward: 2ms, gradients: [a]}]
"""

FILES = [  # what of the file is replaced, by what, and what is said of it
    ("count: 1000", "count: true", "True: input should be a valid integer"),
    ("count: 1000", "count: -1", "write 0 to"),
    ("count: 1000", "count: 1.5", "valid integer"),
    ("count: 1000", "count: 1e30", "valid integer"),
    ("count: 1000", "count: x", "valid integer"),
    ("count: 1000", "count: [1]", "a list"),
    ("count: 1000", "count: .nan", "valid integer"),
    ("count: 1000", "count: 99999999999999999999999", "write 0 to"),
    ("count: 1000", "count: 9, dtype: int64", "int64, which has no gradients; write for example float32"),
    ("count: 1000", "count: 9, dtype: bool", "bool, which has no gradients"),
    ("count: 1000", "count: 9, dtype: float99", "allowed: float32"),
    ("count: 1000", "count: 9, dtype: 5", "valid string"),
    ("count: 1000", "count: 9, sparse: 3", "valid boolean"),
    ("count: 1000", "cnt: 5", "is not known; allowed: name"),
    ("{count: 1000}", "1000", "valid dictionary"),
    ("batch: 4", "batch: 0", "a batch of 0; write 1 to"),
    ("batch: 4", "batch: -1", "a batch of -1; write 1 to"),
    ("batch: 4", "batch: true", "valid integer"),
    ("batch: 4", "batch: 1.5", "valid integer"),
    ("batch: 4", "batch:", "valid integer"),
    ("batch: 4", "bacth: 4", "is not known; allowed: name, batch"),
    ("batch: 4", "buffers: 3", "valid dictionary"),
    ("forward: 1ms", "forward: 1", "write for example 5us"),
    ("forward: 1ms", "forward: -1ms", "is negative; write"),
    ("forward: 1ms", "forward: nan", "not a duration"),
    ("forward: 1ms", "forward: 1e300s", "is too large"),
    ("forward: 1ms", "forward: true", "not a duration"),
    ("forward: 1ms", "forwrd: 1ms", "is not known"),
    ("forward: 1ms, backward: 2ms", "forward: 0s, backward: 0s", "no layer takes any time; write"),
    ("[a]}", "[a], activation: -5}", "is negative; write"),
    ("[a]}", "[a], activation: 1e30}", "allowed: up to 1 PiB"),
    ("[a]", "[b]", "unknown parameter 'b'"),
    ("[a]", "[a, a]", "more than once"),
    ("[a]", "a", "valid list"),
    ("[a]", "[1]", "valid string"),
    ("[a]", "[]", "no layer names a gradient"),
    ("name: x", "name: [x]", "valid string"),
    (FILE, "", "contains no workload; write 'name:'"),
    (FILE, "[]", "contains no workload"),
    (FILE, "name: x", "layers: is missing"),
    (FILE, "a: &a [*a]", "not known"),
    (FILE, "\x00", "not YAML"),
    (FILE, FILE + FILE, "is given twice"),
    (FILE, "%YAML 9", "not YAML"),
    (FILE, '{"schema": "ringside.ddp/1"}', "fingerprint: Field required"),
]

MODULES = [  # lines after the imports, and what is said of them
    ("x = 1", "no function 'model'; it has none; write FILE.py:NAME"),
    ("def model(): raise KeyError('a')", "KeyError: 'a'; write FILE.py:NAME"),
    ("def model(): return None", "returns NoneType; write"),
    ("def model(:", "SyntaxError"),
    ("def model(): return 1, 2", "returns tuple; write"),
    ("def model(): return nn.Linear(3, 3)", "returns Linear; write"),
    ("def model(): return nn.Linear(3, 3), ()", "gives no inputs"),
    ("def model(): return nn.Linear(3, 3), torch.randn(0, 3)", "inputs without a sample"),
    ("def model(): return nn.Linear(3, 3), torch.randn(2, 4)", "write inputs that its forward takes"),
    (
        "def model(): return nn.Linear(3, 3).requires_grad_(False), torch.randn(2, 3)",
        "no parameter that requires a gradient",
    ),
    ("def model(): raise SystemExit(3)", "SystemExit: 3"),
    ("def model(): return nn.LazyLinear(3), torch.randn(2, 3)", "LazyLinear has lazy layers"),
    ("def model(x): return 1", "missing 1 required positional argument"),
    ("def model(): return model()", "RecursionError"),
    ("import nothing_like_this", "No module named"),
]

R = "--model resnet50 --cluster dgx-h100:2"
N = "--model resnet50 --cluster dgx-h100"
S = "--model vgg16 --cluster star:4"
SHARDED = "--strategy fsdp --batch 1 --cluster dgx-h100:2"
WORDS = [  # a command line, and what is said of it; empty where it is answered
    (f"{R} --batch 0", "write 1 or more samples"),
    (f"{R} --batch -3", "write 1 or more samples"),
    (f"{R} --batch 99999999999999", "write 0 to"),
    (f"{R} --batch 1000000", ""),
    (f"{R} --global-batch 0", "write 16 or a multiple of it"),
    (f"{R} --global-batch -16", "write 16 or a multiple of it"),
    (f"{R} --global-batch 17", "write 16 or a multiple of it"),
    (f"{R} --accumulation 0", "write 1 to 10000"),
    (f"{R} --accumulation 100000000", "write 1 to 10000"),
    (f"{R} --straggler 3", "write RANK=FACTOR"),
    (f"{R} --straggler =2", "write RANK=FACTOR"),
    (f"{R} --straggler 3=0", "write 0.000001 to 1,000,000"),
    (f"{R} --straggler 3=-1", "write 0.000001 to 1,000,000"),
    (f"{R} --straggler 3=nan", "write 0.000001 to 1,000,000"),
    (f"{R} --straggler 3=inf", "write 0.000001 to 1,000,000"),
    (f"{R} --straggler 99=2", "ranks 0 to 15"),
    (f"{R} --straggler 3=2 --straggler 3=2", "twice; write only --straggler 3=2"),
    (f"{R} --straggler 3=1e-6", ""),
    (f"{R} --contention 1", "write a share from 0"),
    (f"{R} --contention nan", "write a share from 0"),
    (f"{R} --contention 0.999999", ""),
    (f"{R} --spread -1", "write a share from 0"),
    (f"{R} --spread nan", "write a share from 0"),
    (f"{R} --measured abc", "write RATE@RANKS"),
    (f"{R} --measured 0@1", "write RATE@RANKS"),
    (f"{R} --measured nan@1", "write RATE@RANKS"),
    (f"{R} --measured -5@1", "write RATE@RANKS"),
    (f"{R} --measured 1e300@1", "times what"),
    (f"{R} --measured 2616img/s@100000000", "a training on 100000000 ranks; write 1 to 4194304"),
    (f"{R} --measured 100@9999999999999999999", "equally many per machine"),
    (f"{R} --measured 2616img/s@1", ""),
    (f"{R} --compute-efficiency 0", "write a share from 1e-06 to"),
    (f"{R} --compute-efficiency nan", "write a share from 1e-06 to"),
    (f"{R} --compute-efficiency 1e-300", "a compute efficiency of 1e-300; write a share from 1e-06"),
    (f"{SHARDED} --model llama2-7b --compute-efficiency 1e-310", "write a share from 1e-06 to 2"),
    (
        f"{SHARDED} --model llama2-7b --attention-efficiency 1e-300",
        "an attention efficiency of 1e-300; write",
    ),
    (
        f"{SHARDED} --model llama2-7b --attention-efficiency 0",
        "an attention efficiency of 0.0; write a share",
    ),
    (f"{SHARDED} --model llama2-7b:9999999999999999,longest=9999999999999999", "not a number of tokens"),
    (
        f"{SHARDED} --model llama2-7b:2048,layers=1000000000",
        "layers is '1000000000'; write for example layers=32, 5000 at most",
    ),
    (f"{SHARDED} --model llama2-7b:2048,layers=0", "layers is '0'; write for example layers=32"),
    (f"{SHARDED} --model llama2-7b:2048,layers=2,layers=3", "says layers twice; write it once"),
    (f"{SHARDED} --model llama2-7b:2048,width={'9' * 185},heads=1", "write for example width=4096"),
    (f"{SHARDED} --model llama2-7b:٣", "not a number of tokens"),
    (f"{SHARDED} --model llama2-7b:", "not a number of tokens"),
    (f"{R} --precision fp8", "write one of float32"),
    (f"{R} --precision ''", "write a text"),
    (f"{R} --dtype int64", "write one of float32"),
    (f"{R} --dtype tf32", "write one of float32"),
    (f"{R} --optimizer lion", "write one of sgd"),
    (f"{R} --bucket-cap-mb nan", "write 0 or more"),
    (f"{R} --bucket-cap-mb 1e300", "write 0 or more"),
    (f"{R} --bucket-cap-mb 0", ""),
    (f"{R} --comm-hook topk", "write one of allreduce"),
    (f"{R} --comm-hook allreduce:rank=2", "allreduce has no arguments; write allreduce"),
    (f"{R} --comm-hook powersgd:rnk=2", "write rank, start, min-rate"),
    (f"{R} --comm-hook powersgd:rank=0", "write 1 or more"),
    (f"{R} --comm-hook powersgd:start=1", "write 2 or more"),
    (f"{R} --bucket-cap-mb-list 1,x", "write MiB separated by commas, for example 1,5,25"),
    (f"{R} --bucket-cap-mb-list 1,-5", "write 0 or more"),
    (f"{R} --bucket-cap-mb 5 --bucket-cap-mb-list 1", "remove one of them"),
    (f"{R} --bucket-cap-mb-list 1 --sweep bucket-cap-mb=1,5", "remove one of them"),
    (f"{R} --strategy ''", "write a text"),
    (f"{R} --library x", "write one of ideal"),
    (f"{R} --device ''", "write a text"),
    (f"{R} --device h1000", "write one of a10"),
    (f"{R} --sweep x=1", "write for example bucket-cap-mb=1,5,25"),
    (f"{R} --sweep bucket-cap-mb=", "write for example bucket-cap-mb=1,5,25"),
    (f"{R} --sweep bucket-cap-mb=inf", "write for example bucket-cap-mb=1,5,25"),
    (f"{R} --network x", "write one of fifo, fair"),
    (f"{R} --calibration nofile", "nofile: no such file; write one of auto, none"),
    (f"{R} --anchor nofile", "no such file"),
    (f"{R} --plot x.gif", "write a name that ends in"),
    (f"{R} --trace ''", "write another path"),
    (f"{R} -g 3", "equally many per machine"),
    (f"{R} --set nic=0", "write for example 400Gb/s"),
    (f"{R} --set nic=1B/s", "write 9.6Gb/s or more"),
    (f"{R} --set nic=8Gb/s", "write 9.6Gb/s or more"),
    (f"{R} --set foo=1", "write one of these, or --library ideal"),
    (f"{N} --sweep nodes=0", "write 1 to"),
    (f"{N} --sweep nodes=1e9", "write 1 to"),
    (f"{N} --sweep nodes=1,2,3 --global-batch 100", "a batch of 100 on 8 ranks"),
    (f"{S} --set bandwidth=0", "not a rate; write"),
    (f"{S} --set latency=-1us", "is negative; write"),
    (f"{S} --set bandwidth=1B/s", ""),
    (f"{S} --library nccl", "add for example device"),
    ("--model resnet51 --cluster star:4", "write one of resnet50"),
    ("--model '' --cluster star:4", "write a text"),
    ("--model resnet50:7 --cluster star:4", "write a multiple of 32"),
    ("--model gpt2:99999 --cluster star:4", "this model takes 1 to 1024"),
    ("--model resnet50 --cluster ''", "write a text"),
    ("--model resnet50 --cluster dgx-h100:-1", "write for example dgx-h100:4"),
    ("--model resnet50 --cluster star:100000000", "allowed: 1 to 262144"),
]


@pytest.fixture
def asked(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def ask(words, said):
        monkeypatch.setattr(sys, "argv", ["ringside", "train", *words, "--json"])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        if said:
            assert (code, out) == (2, "")
            assert said in err
            return
        assert code == 0
        for row in json.loads(out)["rows"]:
            numbers = [value for value in row.values() if isinstance(value, float)]
            assert all(math.isfinite(value) and value >= 0 for value in numbers)
            assert 0 < row["lower_s"] <= row["step_s"] <= row["upper_s"] * (1 + 1e-9)
            assert 0 < row["weak_efficiency"] <= 1.001

    return ask


def test_there_are_more_than_a_hundred():
    assert len(FILES) + len(MODULES) + len(WORDS) > 110


@pytest.mark.parametrize(("old", "new", "said"), FILES)
def test_a_wrong_file_is_refused(asked, tmp_path, old, new, said):
    (tmp_path / "x.yaml").write_text(FILE.replace(old, new))
    asked(["--model", "x.yaml", "--cluster", "star:4"], said)


@pytest.mark.parametrize(("line", "said"), MODULES)
def test_a_wrong_model_of_ones_own_is_refused(asked, tmp_path, line, said):
    (tmp_path / "random.py").write_text(f"import torch\nfrom torch import nn\n{line}\n")
    asked(["--model", "random.py:model", "--cluster", "star:4"], said)


@pytest.mark.parametrize(("words", "said"), WORDS)
def test_wrong_words_are_refused_or_answered_with_sense(asked, words, said):
    asked(shlex.split(words), said)
