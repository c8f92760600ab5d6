from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from ringside.real.model.architecture import architecture
from ringside.sim.training.ddp.buckets import Bucket, Bucketing, first_layout, layout, rebuilt_layout
from tests.sim.training.unusual_models import UNUSUAL

Inputs = tuple[torch.Tensor, ...]
Watch = Callable[..., Any]


def mlp() -> tuple[nn.Module, Inputs]:
    widths = (784, 1200, 1200, 10)
    layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    return nn.Sequential(*layers), (torch.randn(2, 784),)


def plain_convnet() -> tuple[nn.Module, Inputs]:
    def stage(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]

    features = [*stage(3, 64), *stage(64, 256), *stage(256, 512)]
    head = [nn.Flatten(), nn.Linear(512, 2048), nn.ReLU(), nn.Dropout(), nn.Linear(2048, 100)]
    return nn.Sequential(*features, *head), (torch.randn(2, 3, 8, 8),)


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample = nn.Sequential(
            nn.Conv2d(inputs, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        return (self.bn3(self.conv3(y)) + self.downsample(x)).relu()


def residual_net() -> tuple[nn.Module, Inputs]:
    blocks = [Bottleneck(3, 64), Bottleneck(256, 128), Bottleneck(512, 256)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000)), (
        torch.randn(2, 3, 4, 4),
    )


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(32 + 64 * i) for i in range(8))
        self.convs = nn.ModuleList(nn.Conv2d(32 + 64 * i, 64, 3, padding=1) for i in range(8))
        self.stem = nn.Conv2d(3, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = torch.cat([x, conv(norm(x).relu())], 1)
        return x


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = (
            nn.Conv2d(1, 64, 3, stride=2, padding=1),
            nn.Conv2d(64, 256, 3, stride=2, padding=1),
        )
        self.up1, self.up2 = (
            nn.ConvTranspose2d(256, 64, 2, stride=2),
            nn.ConvTranspose2d(128, 64, 2, stride=2),
        )
        self.middle = nn.Conv2d(256, 256, 3, padding=1)
        self.out = nn.Conv2d(64, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x).relu()
        b = self.middle(self.down2(a).relu())
        return self.out(self.up2(torch.cat([a, self.up1(b)], 1)))


class GptBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.ln_1(x)).chunk(3, -1)
        x = x + self.proj(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, width: int = 256, vocabulary: int = 3000) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList(GptBlock(width) for _ in range(4))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class FrozenEncoder(nn.Module):
    """Post-norm encoder layers over an embedding that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 256).requires_grad_(False)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(256, 4, 512, batch_first=True) for _ in range(3)
        )
        self.head = nn.Linear(256, 100)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 256, 4, stride=4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 256))
        self.positions = nn.Parameter(torch.zeros(1, 5, 256))
        self.blocks = nn.Sequential(*[GptBlock(256) for _ in range(3)])
        self.head = nn.Linear(256, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.blocks(x)[:, 0])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 5000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


class Recommender(nn.Module):
    """Sparse embeddings, dense layers, and a crossing of both, as in DLRM."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 64))
        self.tables = nn.ModuleList(nn.EmbeddingBag(5000, 64, sparse=True) for _ in range(3))
        self.top = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1))

    def forward(self, dense: torch.Tensor, *ids: torch.Tensor) -> torch.Tensor:
        found = [table(i) for table, i in zip(self.tables, ids, strict=True)]
        return self.top(torch.cat([self.bottom(dense), *found], 1))


class MixedPrecision(nn.Module):
    """Layers of two dtypes, in turn."""

    def __init__(self) -> None:
        super().__init__()
        dtypes = (torch.bfloat16, torch.float32) * 3
        self.layers = nn.ModuleList(nn.Linear(400, 400, dtype=dtype) for dtype in dtypes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x.to(layer.weight.dtype)).relu()
        return x


ARCHITECTURES: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "mlp": mlp,
    "plain convnet": plain_convnet,
    "residual net": residual_net,
    "dense net": lambda: (DenseNet(), (torch.randn(2, 3, 4, 4),)),
    "u-net": lambda: (UNet(), (torch.randn(2, 1, 8, 8),)),
    "gpt": lambda: (Gpt(), (torch.zeros(2, 8, dtype=torch.long),)),
    "frozen encoder": lambda: (FrozenEncoder(), (torch.zeros(2, 8, dtype=torch.long),)),
    "vision transformer": lambda: (VisionTransformer(), (torch.randn(2, 3, 8, 8),)),
    "lstm": lambda: (Recurrent(), (torch.randn(2, 4, 64),)),
    "recommender": lambda: (Recommender(), (torch.randn(2, 13), *[torch.zeros(2, 3, dtype=torch.long)] * 3)),
    "mixed precision": lambda: (MixedPrecision(), (torch.randn(2, 400),)),
}


FLAGS = [
    Bucketing(),
    Bucketing(bucket_cap_mb=25),
    Bucketing(bucket_cap_mb=1),
    Bucketing(set_last_bucket_cap=True),
    Bucketing(find_unused_parameters=True),
    Bucketing(bucket_cap_mb=1, find_unused_parameters=True),
    Bucketing(static_graph=True),
    Bucketing(bucket_cap_mb=2, static_graph=True, set_last_bucket_cap=True),
]


@pytest.fixture(scope="module")
def arrivals() -> dict[str, tuple[int, ...]]:
    """Return the order of gradients that `ringside.real.model.architecture` predicts, without data."""
    found = {}
    for name, make in (ARCHITECTURES | UNUSUAL).items():
        module, inputs = make()
        blocks = architecture(module, *inputs).blocks
        found[name] = tuple(index for block in reversed(blocks) for index in block.gradients)
    return found


CASES = [
    *((name, bucketing) for name in ARCHITECTURES for bucketing in FLAGS),
    *((name, bucketing) for name in UNUSUAL for bucketing in (Bucketing(bucket_cap_mb=1), FLAGS[-1])),
]


@pytest.mark.parametrize(("name", "bucketing"), CASES, ids=str)
def test_architectures_are_bucketed_as_by_ddp(
    name: str, bucketing: Bucketing, arrivals: dict[str, tuple[int, ...]], watch: Watch
) -> None:
    watched = watch(*(ARCHITECTURES | UNUSUAL)[name](), bucketing)

    workload = watched.workload
    assert workload.arrival == arrivals[name]
    for iteration, reduced in enumerate(watched.buckets, 1):
        assert reduced == [bucket.parameters for bucket in layout(workload, bucketing, iteration)]
    assert watched.log["bucket_sizes"] == sizes(first_layout(workload.parameters, bucketing))
    if not bucketing.find_unused_parameters:
        rebuilt = rebuilt_layout(workload.parameters, workload.arrival, bucketing)
        assert watched.log["rebuilt_bucket_sizes"] == sizes(rebuilt)


def sizes(buckets: tuple[Bucket, ...]) -> str:
    return ", ".join(str(bucket.nbytes) for bucket in buckets)
