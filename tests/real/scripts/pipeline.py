"""A pipeline by ``torch.distributed.pipelining``, 1F1B, with shapes found: ``pipeline.py [REPLICAS]``."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("nccl")
stages, replicas = dist.group.WORLD, None
if len(sys.argv) > 1:
    count = int(sys.argv[1])
    mesh = init_device_mesh("cuda", (dist.get_world_size() // count, count), mesh_dim_names=("pp", "dp"))
    stages, replicas = mesh.get_group("pp"), mesh.get_group("dp")
rank, ranks = dist.get_rank(stages), dist.get_world_size(stages)
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).to(device)
stage = PipelineStage(model, rank, ranks, device, group=stages)
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
    for parameter in model.parameters() if replicas else ():
        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, group=replicas)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
