"""Convolutions with BatchNorm, replicated, by SGD with momentum."""

import os
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn

WIDTHS, CLASSES, PIXELS, BATCH = (3, 32, 64, 128), 100, 32, 8


class Block(nn.Module):
    def __init__(self, before, width):
        super().__init__()
        self.turn = nn.Conv2d(before, width, 1, bias=False)
        self.convolutions = nn.Sequential(
            nn.Conv2d(before, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        return self.pool((self.convolutions(x) + self.turn(x)).relu())


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(*pair) for pair in pairwise(WIDTHS)])
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(WIDTHS[-1], CLASSES)

    def forward(self, x):
        return self.head(self.pool(self.blocks(x)).flatten(1))


dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
model = nn.parallel.DistributedDataParallel(Network().cuda(), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for _ in range(4):
    images = torch.randn(BATCH, 3, PIXELS, PIXELS, device="cuda")
    labels = torch.randint(0, CLASSES, (BATCH,), device="cuda")
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
