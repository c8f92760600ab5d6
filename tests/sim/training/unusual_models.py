"""Models with an unusual backward: recurrent, checkpointed, reading numbers, frozen in part."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

Inputs = tuple[torch.Tensor, ...]


class Reader(nn.Module):
    """An embedding, a recurrent layer, a head."""

    def __init__(self, recurrent: nn.Module, width: int) -> None:
        super().__init__()
        self.words, self.recurrent, self.head = nn.Embedding(500, 64), recurrent, nn.Linear(width, 500)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(self.words(tokens))[0])


class StepByStep(nn.Module):
    """Recurrent cells in a Python loop."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.low, self.high, self.head = cell(64, 200), cell(200, 200), nn.Linear(200, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = high = None
        for moment in x.unbind(1):
            low = self.low(moment, low)
            shown = low[0] if isinstance(low, tuple) else low
            high = self.high(shown, high)
        return self.head(high[0] if isinstance(high, tuple) else high)


class Packed(nn.Module):
    """Sequences of several lengths, which are read from a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.head = nn.LSTM(64, 256, batch_first=True), nn.Linear(256, 100)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)[0])


class Translator(nn.Module):
    """A recurrent encoder, attention, a recurrent decoder with the encoder's embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(300, 128)
        self.encoder = nn.GRU(128, 128, bidirectional=True, batch_first=True)
        self.decoder = nn.LSTM(128, 256, batch_first=True)
        self.attention = nn.MultiheadAttention(256, 4, batch_first=True)
        self.head = nn.Linear(256, 300)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        memory = self.encoder(self.words(tokens))[0]
        asking = self.decoder(self.words(tokens.flip(1)))[0]
        return self.head(self.attention(asking, memory, memory)[0])


class Checkpointed(nn.Module):
    """Blocks whose activations are not kept, unless ``use_reentrant`` is None."""

    def __init__(self, use_reentrant: bool | None) -> None:
        super().__init__()
        self.front = nn.Linear(64, 256)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 600), nn.GELU(), nn.Linear(600, 256))
            for _ in range(4)
        )
        self.head = nn.Linear(256, 100)
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.front(x)
        for block in self.blocks:
            kept = self.use_reentrant is None
            x = x + (block(x) if kept else checkpoint(block, x, use_reentrant=self.use_reentrant))
        return self.head(x)


class CheckpointedChain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Linear(64, 300)
        self.chain = nn.Sequential(*[nn.Linear(300, 300) for _ in range(6)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint_sequential(self.chain, 3, self.front(x), use_reentrant=True)


class CheckpointedReader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front, self.recurrent, self.head = nn.Linear(64, 64), nn.LSTM(64, 200), nn.Linear(200, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(checkpoint(lambda y: self.recurrent(y)[0], self.front(x), use_reentrant=True))


class Experts(nn.Module):
    """Each token goes to one expert, found by ``nonzero``."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(64, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 64)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            (chosen,) = torch.nonzero(torch.arange(len(x)) % 4 == number, as_tuple=True)
            out = out.index_add(0, chosen, weights[chosen, number, None] * expert(x[chosen]))
        return out


class Scaling(nn.Module):
    """Looks at its own numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.back = nn.Linear(64, 700), nn.Linear(700, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.front(x)
        return self.back(x if x.abs().max().item() < 1e6 else x / 2)


class Siamese(nn.Module):
    """One tower for two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 128))
        self.compare = nn.Bilinear(128, 128, 3)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.compare(self.tower(left), self.tower(right))


class FrozenBackbone(nn.Module):
    """A trained head on layers that are not, which run without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64)).requires_grad_(False)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(64 * 36, 400), nn.ReLU(), nn.Linear(400, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = self.backbone(x)
        return self.head(x)


class Adapted(nn.Module):
    """Frozen layers, each with two thin trained ones beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.ModuleList(nn.Linear(400, 400).requires_grad_(False) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(400, 64, bias=False) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(64, 400, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for frozen, down, up in zip(self.frozen, self.down, self.up, strict=True):
            x = frozen(x) + up(down(x))
        return x


class Separable(nn.Module):
    """Depthwise and pointwise convolutions, group norms, a gate from the pooled image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, padding=1)
        self.depth = nn.Conv2d(64, 64, 3, padding=1, groups=64)
        self.norm, self.point = nn.GroupNorm(8, 64), nn.Conv2d(64, 512, 1)
        self.gate = nn.Sequential(nn.Linear(512, 128), nn.SiLU(), nn.Linear(128, 512), nn.Sigmoid())
        self.head = nn.Linear(512, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.point(self.norm(self.depth(self.stem(x)))).mean((2, 3))
        return self.head(x * self.gate(x))


class Several(nn.Module):
    """Two outputs by name, one of an auxiliary head in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Linear(64, 500), nn.Linear(500, 500)
        self.aside, self.head = nn.Linear(500, 10), nn.Linear(500, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        middle = self.low(x).relu()
        return torch.cat([self.head(self.high(middle)), self.aside(middle)], -1)


def generator() -> tuple[nn.Module, Inputs]:
    layers = [nn.ConvTranspose2d(64, 128, 4), nn.InstanceNorm2d(128, affine=True), nn.PReLU(128)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(128, 3, 4, stride=2)), (torch.randn(2, 64, 1, 1),)


def normed() -> tuple[nn.Module, Inputs]:
    layers = [parametrizations.weight_norm(nn.Conv1d(32, 300, 3)), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.utils.spectral_norm(nn.Linear(1800, 100))), (torch.randn(2, 32, 8),)


def video() -> tuple[nn.Module, Inputs]:
    layers = [nn.Conv3d(3, 64, 3), nn.BatchNorm3d(64), nn.ReLU(), nn.Conv3d(64, 128, 2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(128, 10)), (torch.randn(2, 3, 4, 4, 4),)


def whole_transformer() -> tuple[nn.Module, Inputs]:
    module = nn.Transformer(128, 4, 2, 2, 300, batch_first=True)
    return module, (torch.randn(2, 5, 128), torch.randn(2, 5, 128))


def _reader(kind: type[nn.RNNBase], width: int = 200, **more: Any) -> Callable[[], tuple[nn.Module, Inputs]]:
    ways = 2 if more.get("bidirectional") else 1
    out = more.get("proj_size") or width
    return lambda: (
        Reader(kind(64, width, 2, batch_first=True, **more), ways * out),
        (torch.zeros(2, 5, dtype=torch.long),),
    )


UNUSUAL: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "gru": _reader(nn.GRU),
    "rnn": _reader(nn.RNN),
    "relu rnn": _reader(nn.RNN, nonlinearity="relu"),
    "bilstm": _reader(nn.LSTM, bidirectional=True),
    "bigru": _reader(nn.GRU, bidirectional=True),
    "birnn": _reader(nn.RNN, bidirectional=True),
    "lstm, no bias": _reader(nn.LSTM, bias=False),
    "lstm, dropout": _reader(nn.LSTM, dropout=0.1),
    "lstm, projected": _reader(nn.LSTM, proj_size=100),
    "lstm cells": lambda: (StepByStep(nn.LSTMCell), (torch.randn(2, 4, 64),)),
    "gru cells": lambda: (StepByStep(nn.GRUCell), (torch.randn(2, 4, 64),)),
    "packed": lambda: (Packed(), (torch.randn(2, 5, 64), torch.tensor([5, 3]))),
    "translator": lambda: (Translator(), (torch.zeros(2, 5, dtype=torch.long),)),
    "reentrant checkpoints": lambda: (Checkpointed(True), (torch.randn(2, 64),)),
    "checkpoints": lambda: (Checkpointed(False), (torch.randn(2, 64),)),
    "checkpointed chain": lambda: (CheckpointedChain(), (torch.randn(2, 64),)),
    "checkpointed lstm": lambda: (CheckpointedReader(), (torch.randn(3, 2, 64),)),
    "experts": lambda: (Experts(), (torch.randn(8, 64),)),
    "looks at its numbers": lambda: (Scaling(), (torch.randn(2, 64),)),
    "siamese": lambda: (Siamese(), (torch.randn(2, 64), torch.randn(2, 64))),
    "frozen backbone": lambda: (FrozenBackbone(), (torch.randn(2, 3, 8, 8),)),
    "adapters": lambda: (Adapted(), (torch.randn(2, 400),)),
    "separable": lambda: (Separable(), (torch.randn(2, 3, 6, 6),)),
    "two heads": lambda: (Several(), (torch.randn(2, 64),)),
    "generator": generator,
    "weight and spectral norm": normed,
    "video": video,
    "whole transformer": whole_transformer,
}
