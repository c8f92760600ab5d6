"""FullyShardedDataParallel that wraps each layer: ``fsdp1.py [decay]``, which spares biases weight decay."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
model = nn.Sequential(nn.Linear(64, 64), *[Layer() for _ in range(3)])
model = FullyShardedDataParallel(
    model, auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=torch.device("cuda", local),
    sync_module_states=True, use_orig_params=True,
)  # fmt: skip
parameters = model.parameters()
if "decay" in sys.argv:
    named = dict(model.named_parameters())
    groups = ([name for name in named if name.endswith("bias") is spared] for spared in (False, True))
    parameters = [
        {"params": [named[name] for name in names], "weight_decay": decay}
        for names, decay in zip(groups, (0.1, 0.0), strict=True)
    ]
optimizer = torch.optim.AdamW(parameters)
for _ in range(5):
    model(torch.randn(4, 64, device="cuda")).pow(2).mean().backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
