"""DistributedDataParallel with several buckets, plain or with a layer that no step uses."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(8))
        if len(sys.argv) > 1:
            self.unused = nn.Linear(64, 64)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
how = dict.fromkeys(sys.argv[1:], True)
model = nn.parallel.DistributedDataParallel(Model().to(local), device_ids=[local], bucket_cap_mb=1, **how)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    loss = model(torch.randn(4, 256, device="cuda")).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
