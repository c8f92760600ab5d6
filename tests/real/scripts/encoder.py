"""An encoder of torch's MultiheadAttention by FullyShardedDataParallel, trained on masked tokens."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

WIDTH, HEADS, LAYERS, TOKENS, VOCABULARY, BATCH = 256, 4, 3, 64, 4000, 8


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        attended, _ = self.attention(x, x, x)
        x = self.norm1(x + attended)
        return self.norm2(x + self.mlp(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.places(torch.arange(TOKENS, device=tokens.device))
        return self.head(self.layers(x))


dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
model = FullyShardedDataParallel(
    Encoder().cuda(),
    auto_wrap_policy=ModuleWrapPolicy({Layer}),
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    device_id=torch.device("cuda", local),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(4):
    tokens = torch.randint(0, VOCABULARY, (BATCH, TOKENS), device="cuda")
    is_masked = torch.rand(BATCH, TOKENS, device="cuda") < 0.15
    labels = tokens.masked_fill(~is_masked, -100)
    made = model(tokens.masked_fill(is_masked, 0))
    loss = nn.functional.cross_entropy(made.flatten(0, 1), labels.flatten())
    loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
dist.destroy_process_group()
