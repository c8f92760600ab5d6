"""A decoder's layer in bfloat16 as one writes it: ``llama`` or ``gpt``, ``eager`` or ``compile``."""

import sys

import torch
from torch import nn
from torch.nn import functional

MODEL, HOW = sys.argv[1:]
WIDTH, TOKENS, HEAD = 4096, 4096, 128


def turned(x, turns):
    """Rotary positions by complex numbers, as torchtitan has them."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


def heads(x):
    return x.unflatten(-1, (-1, HEAD))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        inner, few = 14336, 1024
        shapes = {
            "q": (WIDTH, WIDTH), "k": (WIDTH, few), "v": (WIDTH, few), "o": (WIDTH, WIDTH),
            "gate": (WIDTH, inner), "up": (WIDTH, inner), "down": (inner, WIDTH),
        }  # fmt: skip
        self.products = nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in shapes.items()})
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))

    def forward(self, x, turns):
        product, y = self.products, self.norms[0](x)
        q, k, v = (heads(product[name](y)) for name in "qkv")
        q, k = turned(q, turns), turned(k, turns)
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + product["o"](attended.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return x + product["down"](functional.silu(product["gate"](y)) * product["up"](y))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        shapes = {
            "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH),
            "down": (4 * WIDTH, WIDTH),
        }  # fmt: skip
        self.products = nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in shapes.items()})
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x, turns):
        joined = self.products["qkv"](self.norms[0](x)).split(WIDTH, -1)
        q, k, v = (heads(part).transpose(1, 2) for part in joined)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.products["out"](attended)
        return x + self.products["down"](functional.gelu(self.products["up"](self.norms[1](x))))


with torch.device("cuda"):
    layer = {"llama": Llama, "gpt": GPT}[MODEL]().bfloat16()
    turns = torch.zeros(1, TOKENS, 1, HEAD // 2, dtype=torch.complex64)
if HOW == "compile":
    layer = torch.compile(layer)
optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
for _ in range(4):
    x = torch.empty(1, TOKENS, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    made = layer(x, turns)
    made.backward(torch.empty_like(made))
    optimizer.step()
    optimizer.zero_grad()
