"""Under autocast the device computes in the types of CUDA's lists, ``aten/src/ATen/autocast_mode.h``."""

import pytest

from ringside.real.questions.recording import record

SCRIPT = """
import torch
from torch.nn import functional

weight = torch.nn.Parameter(torch.randn(64, 64, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.1)
labels = torch.zeros(32, dtype=torch.int64, device="cuda")
for _ in range(4):
    single, half = torch.randn(2, 16, 64, device="cuda"), torch.randn(32, 64, device="cuda").bfloat16()
    images, filters = torch.randn(2, 3, 8, 8, device="cuda"), torch.randn(4, 3, 3, 3, device="cuda")
    heads = torch.randn(2, 4, 16, 64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        product = single @ weight
        torch.bmm(single, single.mT)
        torch.addmm(weight, weight, weight)
        functional.conv2d(images, filters)
        functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=heads[0, 0] @ heads[0, 0].mT)
        half.softmax(-1), half.log_softmax(-1), half.exp(), half.pow(2), half.cumsum(0), half.prod()
        functional.layer_norm(half, (64,)), functional.rms_norm(half, (64,))
        functional.nll_loss(half, labels), functional.mse_loss(half, half)
        torch.addcmul(single, product, product)
        functional.gelu(half), functional.silu(half), half.mean()
    product.float().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

LOWER = (
    *("mm", "bmm", "addmm", "convolution"),
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
)
SINGLE = (
    *("_softmax", "_log_softmax", "exp", "pow", "cumsum", "prod"),
    *("native_layer_norm", "_fused_rms_norm", "nll_loss_forward", "mse_loss"),
)
WIDEST = ("addcmul",)
AS_GIVEN = ("gelu", "silu", "mean")


@pytest.mark.slow
def test_operators_compute_in_the_types_of_cudas_autocast(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (recorded,) = record(str(script), ranks=1).recorded
    operators = [one for one in recorded.actions if one.kind == "operator"]
    made = {one.name.removeprefix("aten."): one.outputs[0].dtype for one in operators}
    assert {made[name] for name in (*LOWER, *AS_GIVEN)} == {"bfloat16"}
    assert {made[name] for name in (*SINGLE, *WIDEST)} == {"float32"}
