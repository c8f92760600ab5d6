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
