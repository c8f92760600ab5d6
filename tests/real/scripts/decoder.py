"""A decoder whose memory shows: ``decoder.py WAY HOW...``.

WAY is ``ddp``, ``fsdp1``, ``fsdp2``, ``hsdp``, ``tp`` or ``sp``; HOW are ``accumulate``, ``autocast``,
``bfloat16``, ``checkpoint``, ``views``, and ``foreach`` or ``fused`` for the optimizer.
"""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy, gelu
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, VOCABULARY, TOKENS, BATCH, LAYERS = 256, 4, 2048, 128, 4, 2


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        q, k, v = (
            one(x).unflatten(2, (-1, WIDTH // HEADS)).transpose(1, 2) for one in (self.q, self.k, self.v)
        )
        scores = (q @ k.transpose(2, 3)).div(8)
        scores = scores.float().softmax(3).to(v.dtype)  # autocast of CPUs would leave it in 16 bits
        return self.o((scores @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if "checkpoint" in how else layer(x)
        return self.head(self.norm(x))


def fully_sharded(model):
    mesh = (
        init_device_mesh("cuda", (2, ranks // 2), mesh_dim_names=("replicate", "shard"))
        if way == "hsdp"
        else init_device_mesh("cuda", (ranks,))
    )
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    own = {"mp_policy": half} if "bfloat16" in how else {}
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, **own)
    return fully_shard(model, mesh=mesh, **own)


def tensor_parallel(model):
    rows = {"output_layouts": Shard(1)} if way == "sp" else {}
    plan = {
        **dict.fromkeys(("q", "k", "v", "up"), ColwiseParallel()),
        **dict.fromkeys(("o", "down"), RowwiseParallel(**rows)),
    }
    if way == "sp":
        gathered = dict.fromkeys(("q", "k", "v", "up"), ColwiseParallel(input_layouts=Shard(1)))
        plan |= {**gathered, "norm1": SequenceParallel(), "norm2": SequenceParallel()}
    mesh = init_device_mesh("cuda", (ranks,))
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
    if way == "sp":
        ends = {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        }
        parallelize_module(model, mesh, ends)
    return model


def wrapped(model):
    if way == "ddp":
        views = {"gradient_as_bucket_view": True} if "views" in how else {}
        return nn.parallel.DistributedDataParallel(model, device_ids=[local], **views)
    if way == "fsdp1":
        half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        own = {"mixed_precision": half} if "bfloat16" in how else {}
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Layer}),
            device_id=torch.device("cuda", local),
            use_orig_params=True,
            **own,
        )
    return tensor_parallel(model) if way in ("tp", "sp") else fully_sharded(model)


dist.init_process_group("nccl")
way, *how = sys.argv[1:]
local, ranks = int(os.environ["LOCAL_RANK"]), dist.get_world_size()
torch.cuda.set_device(local)
torch.manual_seed(0)
model = wrapped(Decoder().cuda())
optimizer = torch.optim.AdamW(model.parameters(), foreach="foreach" in how, fused="fused" in how)
micros = 3 if "accumulate" in how else 1
cast = torch.autocast("cuda", dtype=torch.bfloat16) if "autocast" in how else contextlib.nullcontext()
for _ in range(4):
    for _ in range(micros):
        tokens = torch.randint(0, VOCABULARY, (BATCH, TOKENS), device="cuda")
        with cast:
            logits = model(tokens)
            loss = cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()) / micros
        loss.backward()
        del logits, loss
    if way != "tp":  # whose parameters are not all DTensors
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
