"""Tensor parallelism by DTensor: plain, with sequence parallelism, or with ``fully_shard`` beside it."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(self.up(self.norm(x)).relu())


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
kind, ranks = sys.argv[1], dist.get_world_size()
width = int(sys.argv[2]) if len(sys.argv) > 2 else 64
if kind == "sharded":
    mesh = init_device_mesh("cuda", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
    own = mesh["tp"]
else:
    own = init_device_mesh("cuda", (ranks,))
model = nn.Sequential(*[Layer() for _ in range(2)]).cuda()
plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
if kind == "sequence":
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
for layer in model:
    parallelize_module(layer, own, plan)
    if kind == "sharded":
        fully_shard(layer, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
share = 8 // ranks if kind == "sequence" else 8
for _ in range(5):
    loss = model(torch.randn(4, share, width, device="cuda")).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
