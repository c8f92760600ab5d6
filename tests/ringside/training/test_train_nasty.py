"""``ringside train`` with wrong input: a clear error, or an answer with valid numbers."""

import math

import pytest

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
    (FILE, "name: x", "contains neither a decoder nor timed layers; write layers, width,"),
    (FILE, "parameters: {}", "layers: is missing"),
    (FILE, "a: &a [*a]", "contains neither a decoder nor timed layers"),
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
EXTREMES = [
    f"{R} --batch 1000000",
    f"{R} --straggler 3=1e-6",
    f"{R} --contention 0.999999",
    f"{R} --measured 2616img/s@1",
    f"{R} --bucket-cap-mb 0",
    "--model vgg16 --cluster star:4 --set bandwidth=1B/s",
]


@pytest.mark.parametrize(("old", "new", "message"), FILES)
def test_a_wrong_file_is_refused(refused, tmp_path, old, new, message):
    (tmp_path / "x.yaml").write_text(FILE.replace(old, new))
    assert message in refused("train --model x.yaml --cluster star:4")


@pytest.mark.parametrize(("line", "message"), MODULES)
def test_a_wrong_model_of_ones_own_is_refused(refused, tmp_path, line, message):
    (tmp_path / "random.py").write_text(f"import torch\nfrom torch import nn\n{line}\n")
    assert message in refused("train --model random.py:model --cluster star:4")


@pytest.mark.parametrize("words", EXTREMES)
def test_extreme_values_are_answered_with_sense(json_of, words):
    for row in json_of(f"train {words}")["rows"]:
        numbers = [value for value in row.values() if isinstance(value, float)]
        assert all(math.isfinite(value) and value >= 0 for value in numbers)
        assert 0 < row["lower_s"] <= row["step_s"] <= row["upper_s"] * (1 + 1e-9)
        assert 0 < row["weak_efficiency"] <= 1.001
