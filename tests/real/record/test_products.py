"""Products and convolutions of a recording say in what precision the script lets them be computed."""

import pytest

from ringside.real.questions.recording import record
from tests.tiers import slow_or_proof

SCRIPT = """
import sys
import torch

side = torch.nn.Parameter(torch.randn(64, 64, device="cuda"))
filters = torch.nn.Parameter(torch.randn(8, 8, 3, 3, device="cuda"))
images = torch.randn(2, 8, 16, 16, device="cuda")
optimizer = torch.optim.SGD([side, filters], lr=0.1)
for _ in range(4):
    for setting in sys.argv[1:]:
        exec(setting, vars(torch.backends) | {"torch": torch})
        (side @ side).sum()
        torch.nn.functional.conv2d(images, filters).sum().backward()
    optimizer.step()
"""

LEGACY = {
    "cudnn.allow_tf32 = True; cuda.matmul.allow_tf32 = False": (False, True),
    "cuda.matmul.allow_tf32 = True": (True, True),
    "torch.set_float32_matmul_precision('highest')": (False, True),
    "torch.set_float32_matmul_precision('high'); cudnn.allow_tf32 = False": (True, False),
}
NEW = {
    "cudnn.conv.fp32_precision = torch.backends.fp32_precision = 'tf32'": (True, True),
    "torch.backends.fp32_precision = 'ieee'": (False, True),
    "cudnn.conv.fp32_precision = 'ieee'; cuda.matmul.fp32_precision = 'tf32'": (True, False),
    "cuda.matmul.fp32_precision = 'none'": (False, False),
}


@pytest.mark.parametrize("settings", slow_or_proof([LEGACY, NEW]))
def test_a_product_in_float32_says_whether_it_may_be_in_tf32(tmp_path, settings):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (recorded,) = record(str(script), *settings, ranks=1).recorded
    allowed = {"aten.mm": [], "aten.convolution": []}
    for entry in recorded.entries:
        action = recorded.actions[entry.action]
        if getattr(action, "name", "") in allowed:
            allowed[action.name].append(dict(action.options)["allow_tf32"])
    assert allowed["aten.mm"] == [products for products, _ in settings.values()]
    assert allowed["aten.convolution"] == [convolutions for _, convolutions in settings.values()]


LAYOUTS = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from transformers.utils.import_utils import is_fake_tensor

images = torch.randn(2, 8, 16, 16, device="cuda")
convolutions = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1)).cuda()
head = nn.Linear(64, 1001, bias=False, device="cuda", dtype=torch.bfloat16)
layers = nn.LSTM(32, 64, 2).cuda()
optimizer = torch.optim.SGD([*convolutions.parameters(), *head.parameters()], lr=0.1)
for _ in range(4):
    assert not is_fake_tensor(images)
    convolutions(images).sum().backward()
    convolutions.to(memory_format=torch.channels_last)
    convolutions(images.to(memory_format=torch.channels_last)).sum().backward()
    convolutions.to(memory_format=torch.contiguous_format)
    head(torch.randn(128, 64, device="cuda", dtype=torch.bfloat16)).square().sum().backward()
    query, key = (torch.randn(1, heads, 64, 16, device="cuda", requires_grad=True) for heads in (8, 2))
    scaled_dot_product_attention(query, key, key, enable_gqa=True).sum().backward()
    halves = [one.bfloat16() for one in (query, key, key)]
    scaled_dot_product_attention(*halves, is_causal=True, enable_gqa=True).sum().backward()
    with torch.autocast("cuda", torch.bfloat16):
        output, (state, cell) = layers(torch.randn(5, 3, 32, device="cuda"))
    assert output.shape == (5, 3, 64) and cell.shape == (2, 3, 64) and output.dtype == torch.bfloat16
    output.float().sum().backward()
    optimizer.step()
"""


def test_a_recording_has_the_layouts_and_kernels_of_a_gpu(tmp_path, monkeypatch):
    package = tmp_path / "transformers" / "utils"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "import_utils.py").write_text("def is_fake_tensor(x):\n    return True\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = tmp_path / "train.py"
    script.write_text(LAYOUTS)
    (recorded,) = record(str(script), ranks=1).recorded
    actions = [recorded.actions[entry.action] for entry in recorded.entries]
    convolving = [
        dict(one.options) for one in actions if "convolution" in one.name or "batch_norm" in one.name
    ]
    assert [one["channels_last"] for one in convolving] == [False] * 6 + [True] * 6
    alignments = [dict(one.options).get("alignment") for one in actions if one.name == "aten.mm"]
    assert alignments.count(2) == 2
    names = [one.name for one in actions]
    assert names.count("aten._scaled_dot_product_flash_attention") == 1
    assert not any("efficient" in name for name in names)
    assert (names.count("cudnn_rnn"), names.count("cudnn_rnn_backward")) == (1, 1)
