"""A small Llama-like decoder, with the layers of a large one."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from ringside.real.training.job import Decoder

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Causal attention of queries, keys and values: batch x heads x tokens x width."""


def alone(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return the attention of a rank that has all tokens."""
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class Attention(nn.Module):
    """Causal attention of several heads: over all tokens, or by ``attend`` with other ranks'."""

    def __init__(self, model: Decoder, attend: Attend) -> None:
        super().__init__()
        self._attend = attend
        hidden = model.hidden
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self._head = hidden // model.heads

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

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(model.hidden, model.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(model.inner, model.hidden, bias=False)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the output per token."""
        out: torch.Tensor = self.down(functional.silu(self.gate(value)) * self.up(value))
        return out


class Block(nn.Module):
    """Attention and a feed-forward network, each with a norm before and a residual around."""

    def __init__(self, model: Decoder, attend: Attend) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = (nn.RMSNorm(model.hidden) for _ in range(2))
        self.attention, self.feed = Attention(model, attend), Feed(model)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value after one block."""
        value = value + self.attention(self.attention_norm(value))
        out: torch.Tensor = value + self.feed(self.feed_norm(value))
        return out


class DecoderPart(nn.Module):
    """Consecutive blocks, with the embedding before the first and norm and head after the last."""

    def __init__(self, model: Decoder, layers: range, attend: Attend = alone) -> None:
        super().__init__()
        first, last = layers.start == 0, layers.stop == model.layers
        self.embedding = nn.Embedding(model.vocabulary, model.hidden) if first else None
        self.layers = nn.ModuleDict({str(number): Block(model, attend) for number in layers})
        self.norm = nn.RMSNorm(model.hidden) if last else None
        self.head = nn.Linear(model.hidden, model.vocabulary, bias=False) if last else None

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the logits of tokens, or the part's output."""
        for part in (self.embedding, *self.layers.values(), self.norm, self.head):
            if part is not None:
                value = part(value)
        return value
