"""A decoder like Llama under a strategy: ``transformer.py ddp|fsdp|fsdp1|hsdp|tp|pp [apart|kept] [clip]``."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

LAYERS, WIDTH, HEADS, HIDDEN, VOCABULARY, TOKENS = 4, 2048, 16, 5632, 32000, 2048
BATCH = 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )

    def forward(self, x, rotary):
        batch, tokens, _ = x.shape
        q, k, v = (
            one(x).view(batch, tokens, -1, WIDTH // HEADS).transpose(1, 2)
            for one in (self.query, self.key, self.value)
        )
        q, k = (turned(one, *rotary) for one in (q, k))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(batch, tokens, -1))


def turned(x, cos, sin):
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, left * sin + right * cos), -1)


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(WIDTH), Attention()
        self.feed_forward_norm, self.feed_forward = nn.RMSNorm(WIDTH), FeedForward()

    def forward(self, x, rotary):
        x = x + self.attention(self.attention_norm(x), rotary)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder(nn.Module):
    """Stage ``stage`` of ``stages``: the first has the embedding, the last the head."""

    def __init__(self, stage=0, stages=1):
        super().__init__()
        is_last = stage == stages - 1
        self.embedding = nn.Embedding(VOCABULARY, WIDTH) if stage == 0 else None
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS // stages))
        self.norm = nn.RMSNorm(WIDTH) if is_last else None
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False) if is_last else None
        turns = torch.zeros(TOKENS, WIDTH // HEADS // 2, dtype=torch.bfloat16)
        self.register_buffer("cos", turns, persistent=False)
        self.register_buffer("sin", turns.clone(), persistent=False)

    def forward(self, x):
        x = self.embedding(x) if self.embedding else x
        for layer in self.layers:
            x = layer(x, (self.cos, self.sin))
        return self.head(self.norm(x)) if self.head else x


def loss_of(logits, target):
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


def sharded(model, mesh):
    """Shard each layer, and the embedding and the head together as the root, or apart as torchtitan does."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward="kept" not in sys.argv)
    if "apart" in sys.argv:
        fully_shard(model.embedding, mesh=mesh, mp_policy=policy)
        fully_shard([model.norm, model.head], mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def flattened(model, local):
    """Shard the flat parameter of each layer, and that of the embedding and the head together."""
    types = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({Layer}), mixed_precision=types, device_id=local,
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP if "kept" in sys.argv else None,
    )  # fmt: skip


def split(model, mesh):
    """Cut products by DTensor, and tokens between them."""
    whole, columns, rows = Shard(1), ColwiseParallel, RowwiseParallel
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=whole),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=whole, use_local_output=False),
    }
    parallelize_module(model, mesh, plan)
    into = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
            ),
            **{f"attention.{one}": columns() for one in ("query", "key", "value")},
            "attention.output": rows(output_layouts=whole),
            "feed_forward_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(**into),
            **{f"feed_forward.{one}": columns() for one in ("gate", "up")},
            "feed_forward.down": rows(output_layouts=whole),
        })  # fmt: skip
    return model


dist.init_process_group("nccl")
rank, ranks, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local)
torch.cuda.set_device(device)
strategy, clips = sys.argv[1], "clip" in sys.argv
with torch.device("cuda"):
    model = Decoder(rank, ranks) if strategy == "pp" else Decoder()
if strategy in ("ddp", "tp", "pp"):
    model.to(torch.bfloat16)
if strategy == "ddp":
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local], broadcast_buffers=False)
elif strategy == "fsdp":
    model = sharded(model, init_device_mesh("cuda", (ranks,)))
elif strategy == "fsdp1":
    model = flattened(model, local)
elif strategy == "hsdp":
    model = sharded(model, init_device_mesh("cuda", (ranks // 8, 8), mesh_dim_names=("replicate", "shard")))
elif strategy == "tp":
    model = split(model, init_device_mesh("cuda", (ranks,)))
else:
    schedule = Schedule1F1B(PipelineStage(model, rank, ranks, device), BATCH, loss_fn=loss_of)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(4):
    tokens = torch.randint(VOCABULARY, (BATCH, TOKENS), device=device)
    if strategy == "pp":
        given = [tokens] if rank == 0 else []
        schedule.step(*given, target=tokens if rank == ranks - 1 else None)
    elif strategy == "tp":
        with loss_parallel():
            loss_of(model(tokens), tokens).backward()
    else:
        loss_of(model(tokens), tokens).backward()
    if clips:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
