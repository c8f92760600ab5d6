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


class Reader(nn.Module):
    """Words, two recurrent layers, words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2000, 256)
        self.recurrent = nn.LSTM(256, 512, 2, batch_first=True)
        self.head = nn.Linear(512, 2000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next word, at each word."""
        return self.head(self.recurrent(self.words(tokens))[0])


def recurrent() -> Model:
    """Return an LSTM that reads 32 words of 16 sentences."""
    return Reader(), (torch.zeros(16, 32, dtype=torch.long),)


class Patches(nn.Module):
    """A small vision transformer: patches of 8 x 8 pixels, three encoder layers, a class."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 192, 8, stride=8)
        layer = nn.TransformerEncoderLayer(192, 3, 768, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(192, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of each class."""
        return self.head(self.encoder(self.patch(images).flatten(2).transpose(1, 2)).mean(1))


def vision_transformer() -> Model:
    """Return a small vision transformer on images of 64 x 64 pixels."""
    return Patches(), (torch.randn(16, 3, 64, 64),)


def giant_layer() -> Model:
    """Small layers around one that holds nearly all parameters: 64 MiB of gradients that arrive at once."""
    layers = [nn.Linear(256, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)]
    return nn.Sequential(*layers), (torch.randn(128, 256),)
