"""Models that ``ringside measure ddp`` trains and ``ringside train`` reads: FILE.py:NAME.

Each function returns a module and what to call it with, batch first::

    ringside measure ddp --model examples/models.py:perceptron -o step.json
"""

from itertools import pairwise

import torch
from torch import nn

Model = tuple[nn.Module, tuple[torch.Tensor, ...]]


def perceptron() -> Model:
    """Eight square layers, 4 MiB of gradients each."""
    layers = [nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(8)]
    return nn.Sequential(*layers), (torch.randn(256, 1024),)


def convolutions() -> Model:
    """Much compute and few parameters: convolutions with batch norm on small images."""
    widths = (3, 64, 64, 128, 128)
    blocks = [
        nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        for a, b in pairwise(widths)
    ]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100))
    return nn.Sequential(*blocks, head), (torch.randn(8, 3, 32, 32),)


def transformer() -> Model:
    """Four layers of a transformer's encoder on 64 tokens of width 256."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), (torch.randn(16, 64, 256),)
