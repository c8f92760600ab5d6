"""DistributedDataParallel with an optimizer whose states are split over ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]).cuda()
model = nn.parallel.DistributedDataParallel(model, device_ids=[local], gradient_as_bucket_view=True)
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)
for _ in range(5):
    model(torch.randn(4, 64, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
