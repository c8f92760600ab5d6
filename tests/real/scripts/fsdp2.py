"""``fully_shard`` over all ranks, or over a part of them with replicas: ``fsdp2.py [REPLICAS]``."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
ranks = dist.get_world_size()
if len(sys.argv) > 1:
    replicas = int(sys.argv[1])
    mesh = init_device_mesh("cuda", (replicas, ranks // replicas), mesh_dim_names=("replicate", "shard"))
else:
    mesh = init_device_mesh("cuda", (ranks,))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
with torch.device("meta"):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 64)) for _ in range(4)])
for layer in model:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device="cuda")
for parameter in model.parameters():
    nn.init.normal_(parameter, std=0.02)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    model(torch.randn(4, 64, device="cuda")).pow(2).mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
