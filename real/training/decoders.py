"""Small decoders of Llama's and of GPT's kind, in plain torch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ringside.real.training.job import SmallDecoder, SmallGpt
from ringside.real.training.storages import as_one_kernel

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Causal attention of queries, keys and values: batch x heads x tokens x width."""


def alone(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Compute the attention of a rank that has all tokens."""
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


class KernelNorm(nn.RMSNorm):
    """RMSNorm that keeps what CUDA's kernel keeps: torch's on CPUs is several operators, which keep more."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value, normalized."""
        out: torch.Tensor = _Norm.apply(value, self.weight)  # type: ignore[no-untyped-call]
        return out


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with as_one_kernel():
            wide = value.float()
            scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
            ctx.save_for_backward(value, weight, scale)
            return (wide * scale).to(value.dtype) * weight

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        value, weight, scale = ctx.saved_tensors
        with as_one_kernel():
            gradient, normalized = gradients[0].float(), value.float() * scale
            inner = gradient * weight
            own = (inner * normalized).mean(-1, keepdim=True)
            to_input = (scale * (inner - normalized * own)).to(value.dtype)
            to_weight = (gradient * normalized).flatten(0, -2).sum(0).to(weight.dtype)
            return to_input, to_weight


class CausalAttention(nn.Module):
    """Causal attention of several heads: over all tokens, or by ``attend`` with other ranks'."""

    def __init__(self, model: SmallDecoder, attend: Attend) -> None:
        super().__init__()
        self._attend = attend
        hidden, self._head = model.hidden, model.hidden // model.heads
        few = self._head * model.few_heads
        self.query, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(hidden, few, bias=False) for _ in range(2))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return each token's attention over the earlier tokens."""
        query, key, content = (
            one(value).unflatten(-1, (-1, self._head)).transpose(1, 2)
            for one in (self.query, self.key, self.value)
        )
        attended = self._attend(query, key, content)
        out: torch.Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out


class Feed(nn.Module):
    """A gated feed-forward network."""

    def __init__(self, model: SmallDecoder) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(model.hidden, model.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(model.inner, model.hidden, bias=False)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the output per token."""
        out: torch.Tensor = self.down(functional.silu(self.gate(value)) * self.up(value))
        return out


class TransformerBlock(nn.Module):
    """Attention and a feed-forward network, each with a norm before and a residual around."""

    def __init__(self, model: SmallDecoder, attend: Attend) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = (KernelNorm(model.hidden) for _ in range(2))
        self.attention, self.feed = CausalAttention(model, attend), Feed(model)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value after one block."""
        value = value + self.attention(self.attention_norm(value))
        out: torch.Tensor = value + self.feed(self.feed_norm(value))
        return out


class GptBlock(nn.Module):
    """The same with layer norms, biases, queries, keys and values from one product, and GELU."""

    def __init__(self, model: SmallGpt) -> None:
        super().__init__()
        hidden, self._head = model.hidden, model.hidden // model.heads
        self.attention_norm, self.feed_norm = (nn.LayerNorm(hidden) for _ in range(2))
        self.joined, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, model.inner), nn.Linear(model.inner, hidden)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value after one block."""
        joined = self.joined(self.attention_norm(value)).chunk(3, -1)
        heads = (one.unflatten(-1, (-1, self._head)).transpose(1, 2) for one in joined)
        value = value + self.out(alone(*heads).transpose(1, 2).flatten(2))
        out: torch.Tensor = value + self.down(functional.gelu(self.up(self.feed_norm(value))))
        return out


class DecoderPart(nn.Module):
    """Consecutive blocks, with the embedding before the first and norm and head after the last."""

    def __init__(self, model: SmallDecoder, layers: range, attend: Attend = alone) -> None:
        super().__init__()
        first, last, hidden = layers.start == 0, layers.stop == model.layers, model.hidden
        is_gpt = isinstance(model, SmallGpt)
        self.embedding = nn.Embedding(model.vocabulary, hidden) if first else None
        self.positions = nn.Embedding(model.sequence, hidden) if first and is_gpt else None
        self.layers = nn.ModuleDict(
            {
                str(number): GptBlock(model)
                if isinstance(model, SmallGpt)
                else TransformerBlock(model, attend)
                for number in layers
            }
        )
        norm = nn.LayerNorm if is_gpt else KernelNorm
        self.norm = norm(hidden) if last else None
        self.head = nn.Linear(hidden, model.vocabulary, bias=False) if last else None

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the logits of tokens, or the part's output."""
        if self.embedding is not None:
            value = self.embedding(value)
        if self.positions is not None:
            value = value + self.positions.weight
        for part in (*self.layers.values(), self.norm, self.head):
            if part is not None:
                value = part(value)
        return value
