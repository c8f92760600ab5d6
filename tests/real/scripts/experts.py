"""Experts, one a rank: tokens go to them and back in equal shares; norms by a group of its own."""

import os

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
pairs = [dist.new_group([one, one + 1]) for one in range(0, ranks, 2)]
pair = pairs[rank // 2]
expert = nn.Linear(32, 32, device="cuda")
optimizer = torch.optim.SGD(expert.parameters(), lr=0.01)
for _ in range(5):
    x = torch.randn(8 * ranks, 32, device="cuda")
    there, back = torch.empty_like(x), torch.empty_like(x)
    dist.all_to_all_single(there, x)
    y = expert(there)
    dist.all_to_all_single(back, y.detach())
    y.pow(2).mean().backward()
    norm = sum(one.grad.norm() for one in expert.parameters())
    dist.all_reduce(norm, group=pair)
    every = [torch.empty_like(norm) for _ in range(ranks)]
    dist.all_gather(every, norm)
    dist.broadcast(expert.bias.grad, src=1)
    dist.reduce(expert.weight.grad, dst=0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
