"""Embeddings of a recommender, dense in their gradients, replicated, by Adam over lists."""

import os

import torch
import torch.distributed as dist
from torch import nn

ROWS, WIDTH, BATCH, NUMBERS = (20_000, 8_000, 500, 60), 64, 512, 13


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, WIDTH, mode="sum") for rows in ROWS)
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, 256), nn.ReLU(), nn.Linear(256, WIDTH), nn.ReLU())
        count = len(ROWS) + 1
        self.top = nn.Sequential(
            nn.Linear(WIDTH + count * (count - 1) // 2, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, numbers, chosen):
        x = self.bottom(numbers)
        every = torch.stack([x, *[table(one) for table, one in zip(self.tables, chosen, strict=True)]], 1)
        rows, columns = torch.tril_indices(every.shape[1], every.shape[1], -1, device=x.device)
        products = (every @ every.transpose(1, 2))[:, rows, columns]
        return self.top(torch.cat([x, products], 1)).squeeze(1)


dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
model = nn.parallel.DistributedDataParallel(
    Recommender().cuda(), device_ids=[local], gradient_as_bucket_view=True
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
for _ in range(4):
    numbers = torch.randn(BATCH, NUMBERS, device="cuda")
    chosen = [torch.randint(0, rows, (BATCH, 4), device="cuda") for rows in ROWS]
    clicked = torch.randint(0, 2, (BATCH,), device="cuda").float()
    loss = nn.functional.binary_cross_entropy_with_logits(model(numbers, chosen), clicked)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
