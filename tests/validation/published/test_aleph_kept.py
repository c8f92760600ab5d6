"""What a layer written like Aleph Alpha's keeps, recorded by torch, beside the list of its tensors."""

from typing import Any

import pytest

from ringside.validation.published.training.aleph_alpha.kept import LlamaLayer

WIDTH, HEADS, HIDDEN, TOKENS = 64, 4, 160, 32


def _norm(x: Any, weight: Any) -> Any:
    single = x.float()
    return (single * (single.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()).type_as(x) * weight


def _rotated(x: Any, cosine: Any, sine: Any) -> Any:
    import torch

    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


def _layer(x: Any, weights: dict[str, Any]) -> Any:
    """Attention that writes its scores, and SwiGLU, each behind a norm."""
    import torch

    batch, length, _ = x.shape
    together = torch.nn.functional.linear(_norm(x, weights["n1"]), weights["qkv"])
    heads = together.view(batch, length, HEADS, -1).permute(1, 0, 2, 3)
    query, key, value = heads.chunk(3, -1)
    cosine = torch.ones(length, 1, 1, WIDTH // HEADS, dtype=x.dtype)
    query, key = _rotated(query, cosine, cosine), _rotated(key, cosine, cosine)
    query, key, value = (
        one.reshape(length, batch * HEADS, -1).transpose(0, 1) for one in (query, key, value)
    )
    scores = torch.bmm(query, key.transpose(1, 2)).float().softmax(-1).to(x.dtype)
    out = torch.bmm(scores, value).view(batch, HEADS, length, -1).transpose(1, 2).reshape(batch, length, -1)
    x = x + torch.nn.functional.linear(out, weights["o"])
    normed = _norm(x, weights["n2"])
    gate, up = (torch.nn.functional.linear(normed, weights[name]) for name in ("gate", "up"))
    return x + torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, weights["down"])


@pytest.mark.parametrize("batch", [1, 2])
def test_torch_keeps_the_tensors_of_the_list(batch: int) -> None:
    torch = pytest.importorskip("torch")
    shapes = {
        "n1": (WIDTH,), "n2": (WIDTH,), "qkv": (3 * WIDTH, WIDTH), "o": (WIDTH, WIDTH),
        "gate": (HIDDEN, WIDTH), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN),
    }  # fmt: skip
    made = {
        name: torch.randn(shape, dtype=torch.bfloat16, requires_grad=True) for name, shape in shapes.items()
    }
    held = {one.untyped_storage().data_ptr() for one in made.values()}
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(batch, TOKENS // batch, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _layer(x, made)
    one = LlamaLayer(TOKENS, batch, WIDTH, HEADS, HIDDEN, 1, False, norms=False, flash=False)
    cosines, statistics = 2 * TOKENS // batch * WIDTH // HEADS, 2 * 4 * TOKENS
    listed = sum(one.kept.values()) + cosines + statistics
    assert sum(kept.values()) == pytest.approx(listed, rel=0.01)
