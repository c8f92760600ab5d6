"""A small decoder under torch's tensor parallelism on Gloo, and the number of its collectives.

Run as a file, ``real_counts.py RANK FOLDER``, one of two processes; rank 0 prints a JSON object of counts.
"""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

WIDTH, HIDDEN, WORDS, TOKENS = 16, 32, 64, 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(torch.softmax(self.q(x) * self.k(x), -1) * self.v(x))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Model(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def cut(model: Model, mesh: object, *, sequence: bool, whole: bool) -> None:
    """Apply tensor parallelism as torchtitan does; ``whole`` results are gathered for the loss."""
    between = Shard(1) if sequence else Replicate()
    top = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "head": ColwiseParallel(
            input_layouts=between, output_layouts=Replicate() if whole else Shard(-1), use_local_output=whole
        ),
    }
    parallelize_module(model, mesh, top | ({"norm": SequenceParallel()} if sequence else {}))
    for block in model.blocks:
        plan = {
            **{f"attention.{one}": ColwiseParallel() for one in "qkv"},
            "attention.o": RowwiseParallel(output_layouts=between),
            **{f"feed_forward.{one}": ColwiseParallel() for one in ("w1", "w3")},
            "feed_forward.w2": RowwiseParallel(output_layouts=between),
        }
        if sequence:
            gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
            plan |= {
                "norm1": SequenceParallel(), "norm2": SequenceParallel(),
                "attention": gathered, "feed_forward": gathered,
            }  # fmt: skip
        parallelize_module(block, mesh, plan)


def counted(mesh: object, layers: int, *, sequence: bool, whole: bool) -> dict[str, dict[str, int]]:
    """Count the collectives of forward with the loss, and of backward."""
    torch.manual_seed(0)
    model = Model(layers)
    cut(model, mesh, sequence=sequence, whole=whole)
    tokens = torch.arange(2 * TOKENS).reshape(2, TOKENS)
    forward, backward = CommDebugMode(), CommDebugMode()
    with loss_parallel():
        with forward:
            results = model(tokens)
            loss = nn.functional.cross_entropy(results.flatten(0, 1), tokens.flatten())
        with backward:
            loss.backward()
    return {name: named(mode) for name, mode in (("forward", forward), ("backward", backward))}


def named(mode: CommDebugMode) -> dict[str, int]:
    """Return counts by our names."""
    words = {
        "all_reduce": "all_reduce", "all_gather_into_tensor": "all_gather",
        "reduce_scatter_tensor": "reduce_scatter",
    }  # fmt: skip
    return {words[str(op).rsplit(".", 1)[-1]]: count for op, count in mode.get_comm_counts().items() if count}


def main() -> None:
    rank, folder = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    found = {
        f"{layers} {sequence:d} {whole:d}": counted(mesh, layers, sequence=sequence, whole=whole)
        for layers in (1, 2)
        for sequence in (False, True)
        for whole in (False, True)
    }
    if not rank:
        print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
