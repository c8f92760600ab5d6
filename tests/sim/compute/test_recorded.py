"""Stacks and encoders move what their layers do when they run, recorded on tensors without memory."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, scaled_dot_product_attention, silu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from ringside.real.model.architecture import record
from ringside.sim.compute.kernels import Scores
from ringside.sim.compute.stacks import find_stack
from ringside.sim.workload.models import architecture
from tests.sim.compute.test_stacks import GPT, LLAMA, moved

BF16 = torch.bfloat16


def as_written(x: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm in float32, as transformers' LlamaRMSNorm."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions by swapped halves, as transformers' apply_rotary_pos_emb."""
    half = x.shape[-1] // 2
    return x * cosine + torch.cat((-x[..., half:], x[..., :half]), -1) * sine


class LlamaLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width, inner, few = LLAMA.width, LLAMA.hidden, LLAMA.key_value_heads * 128
        shapes = {
            "q": (width, width), "k": (width, few), "v": (width, few), "o": (width, width),
            "gate": (width, inner), "up": (width, inner), "down": (inner, width),
        }  # fmt: skip
        self.products = nn.ModuleDict({n: nn.Linear(*s, bias=False, dtype=BF16) for n, s in shapes.items()})
        self.norms = nn.ParameterList(nn.Parameter(torch.ones(width, dtype=BF16)) for _ in range(2))

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        product, y = self.products, as_written(x, self.norms[0])
        q, k, v = (product[name](y).unflatten(-1, (-1, 128)).transpose(1, 2) for name in "qkv")
        q, k = turned(q, cosine, sine), turned(k, cosine, sine)
        attended = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + product["o"](attended.transpose(1, 2).flatten(2))
        y = as_written(x, self.norms[1])
        return x + product["down"](silu(product["gate"](y)) * product["up"](y))


class GptLayer(nn.Module):
    def __init__(self, biases: bool, drops: float) -> None:
        super().__init__()
        width, self.drops = GPT.width, drops
        shapes = {
            "qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width),
            "down": (4 * width, width),
        }  # fmt: skip
        self.products = nn.ModuleDict({n: nn.Linear(*s, bias=biases, dtype=BF16) for n, s in shapes.items()})
        self.norms = nn.ModuleList(nn.LayerNorm(width, dtype=BF16) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        joined = self.products["qkv"](self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (-1, 128)).transpose(1, 2) for part in joined)
        attended = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + dropout(self.products["out"](attended), self.drops)
        inner = gelu(self.products["up"](self.norms[1](x)))
        return x + dropout(self.products["down"](inner), self.drops)


def recorded(layer: nn.Module, *inputs: Tensor) -> float:
    """Return the bytes of kernels that memory bounds, per token and column of the first input."""
    kernels = record(layer, *inputs)
    return sum(one.nbytes for one in kernels if one.kind == "memory") / inputs[0].numel()


def test_an_eager_llama_layer_moves_what_the_stack_of_transformers_counts() -> None:
    with torch.device("meta"):
        turns = [torch.ones(4096, 128, dtype=BF16) for _ in range(2)]
        x = torch.ones(1, 4096, LLAMA.width, dtype=BF16, requires_grad=True)
        nbytes = recorded(LlamaLayer(), x, *turns)
    assert nbytes == pytest.approx(457, rel=0.01)
    assert moved("transformers", LLAMA) == pytest.approx(nbytes, rel=0.05)


@pytest.mark.parametrize(("biases", "drops"), [(False, 0.0), (True, 0.1)])
def test_an_eager_gpt_layer_moves_what_the_eager_stack_counts(biases: bool, drops: float) -> None:
    with torch.device("meta"):
        x = torch.ones(1, 2048, GPT.width, dtype=BF16, requires_grad=True)
        nbytes = recorded(GptLayer(biases, drops), x)
    assert moved("eager", replace(GPT, biases=biases), dropout=bool(drops)) == pytest.approx(nbytes, rel=0.05)


class Products(TorchDispatchMode):
    """Counts matrix products."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten.mm.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("reentrant", [False, True])
def test_torch_s_checkpoint_without_reentry_stops_before_a_layer_s_last_product(reentrant: bool) -> None:
    """Which `Stack.stops_early` says of stacks that checkpoint so."""
    with torch.device("meta"):
        layer, x = GptLayer(False, 0.0), torch.ones(1, 8, GPT.width, dtype=BF16, requires_grad=True)
    with Products() as products:
        checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
    four = 4
    assert products.count == 3 * four + (four if reentrant else four - 1)


class PlainScores(nn.Module):
    """Attention in steps of PyTorch, as Aleph Alpha's MaskedSoftmaxTorch: copied scores are masked."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)).clone().masked_fill_(mask, -10000.0)
        return scores.softmax(-1) @ v


def test_plain_attention_moves_what_the_stack_with_plain_attention_counts() -> None:
    heads, sequence, stack = 16, 2048, find_stack("aleph-torch")
    with torch.device("meta"):
        inputs = [torch.zeros(heads, sequence, 128, dtype=BF16, requires_grad=True) for _ in range(3)]
        kernels = record(PlainScores(), *inputs, torch.zeros(1, sequence, sequence, dtype=torch.bool))
    for backward, counted in ((False, stack.undropped.forward), (True, stack.undropped.backward)):
        own = sum(one.nbytes for one in kernels if one.kind == "memory" and one.backward is backward)
        products = 2 * Scores(heads, sequence, 256, backward).elements
        assert counted * heads * sequence**2 == pytest.approx(own + products, rel=0.01)


class TransformersScores(nn.Module):
    """Attention as transformers' eager_attention_forward: scaled, masked, its softmax in float32."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)) * 0.125
        scores = scores + mask
        return torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v


def test_attention_of_transformers_moves_and_keeps_what_its_stack_counts() -> None:
    heads, sequence, stack = 16, 2048, find_stack("transformers")
    with torch.device("meta"):
        inputs = [torch.zeros(heads, sequence, 128, dtype=BF16, requires_grad=True) for _ in range(3)]
        mask = torch.zeros(1, sequence, sequence, dtype=BF16)
        kernels = record(TransformersScores(), *inputs, mask)
        kept: dict[int, int] = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: kept.setdefault(id(tensor), tensor.nbytes) and tensor, lambda tensor: tensor
        ):
            TransformersScores()(*inputs, mask)
    scores = [nbytes for nbytes in kept.values() if nbytes >= 2 * heads * sequence**2]
    assert sum(scores) == stack.kept.of_scores(2, dropout=False) * heads * sequence**2
    for backward, counted in ((False, stack.undropped.forward), (True, stack.undropped.backward)):
        own = sum(one.nbytes for one in kernels if one.kind == "memory" and one.backward is backward)
        products = 2 * Scores(heads, sequence, 256, backward).elements
        assert counted * heads * sequence**2 == pytest.approx(own + products, rel=0.02)


class WrittenScores(nn.Module):
    """Attention by matrix products, as Hugging Face's eager one."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) / 8 + mask
        return dropout(scores.softmax(-1), 0.1) @ v


def test_attention_of_an_encoder_that_writes_its_scores_moves_what_the_module_moves() -> None:
    table = {one.name: one for one in architecture("bert-large:128").blocks}
    attention = table["bert.encoder.layer.0.attention.self"].unfused
    heads = [torch.zeros(2, 16, 128, 64, dtype=BF16, requires_grad=True) for _ in range(3)]
    kernels = record(WrittenScores(), *heads, torch.zeros(1, 1, 1, 128, dtype=BF16))
    for backward, counted in ((False, attention.forward), (True, attention.backward)):
        own = [one for one in kernels if one.kind == "memory" and one.backward is backward]
        assert counted.launches == len(own)
        assert 2 * 2 * counted.moved == pytest.approx(sum(one.nbytes for one in own), rel=0.03)
