"""DistributedDataParallel in half precision: gradient scaler, accumulation, clipping, a loss that is read."""

import os

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).cuda()
model = nn.parallel.DistributedDataParallel(model, device_ids=[local])
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for _ in range(5):
    for micro in range(3):
        model.require_backward_grad_sync = micro == 2
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(4, 64, device="cuda")).float().pow(2).mean() / 3
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    print(total.item())
dist.destroy_process_group()
