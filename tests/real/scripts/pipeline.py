"""A pipeline by ``torch.distributed.pipelining``: one stage a rank, 1F1B, shapes found by asking."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).to(device)
stage = PipelineStage(model, rank, ranks, device)
schedule = Schedule1F1B(stage, 4, loss_fn=lambda y, target: (y - target).pow(2).mean())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    x, target = torch.randn(8, 64, device=device), torch.randn(8, 64, device=device)
    if rank == 0:
        schedule.step(x)
    elif rank == ranks - 1:
        schedule.step(target=target, losses=[])
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
