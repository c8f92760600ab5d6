"""Gated layers divided over ranks by DTensor, with sequence parallelism between them."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

WIDTH, TOKENS, BATCH, LAYERS = 256, 256, 4, 4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, 4 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
ranks = dist.get_world_size()
mesh = init_device_mesh("cuda", (ranks,))
model = nn.Sequential(*[Layer() for _ in range(LAYERS)]).cuda()
for layer in model:
    plan = {
        "norm": SequenceParallel(),
        "gate": ColwiseParallel(input_layouts=Shard(1)),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=True),
    }
    parallelize_module(layer, mesh, plan)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
for _ in range(4):
    own = torch.randn(BATCH, TOKENS // ranks, WIDTH, device="cuda")
    (model(own) - own).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
