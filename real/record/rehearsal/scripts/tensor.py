"""Tensor parallelism by DTensor, plain or with sequence parallelism: ``tensor.py [--sequence]``."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class NormedLayer(nn.Module):
    """A norm and two matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(512), nn.Linear(512, 2048), nn.Linear(2048, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's activations."""
        y: torch.Tensor = self.down(self.up(self.norm(x)).relu())
        return y


def main() -> None:
    """Train three layers on 256 tokens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequence", action="store_true")
    by_sequence = parser.parse_args().sequence
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    ranks = dist.get_world_size()
    mesh = init_device_mesh("cuda", (ranks,))
    model = nn.Sequential(*[NormedLayer() for _ in range(3)]).cuda()
    plan: dict[str, ParallelStyle] = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if by_sequence:
        plan = {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
        }
    for layer in model:
        parallelize_module(layer, mesh, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for _ in range(12):
        x = torch.randn(4, 64 // ranks if by_sequence else 64, 512, device=local)
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
