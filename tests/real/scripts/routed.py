"""Experts that a router chooses: by masks, places, a grouped product, or spread over the ranks."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn.functional import one_hot, silu

HOW = sys.argv[1]
WIDTH, TOKENS, EXPERTS, CHOSEN = 32, 48, 8, 2

dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
own = EXPERTS // ranks if HOW == "spread" else EXPERTS
dtype = torch.bfloat16
gate = nn.Linear(WIDTH, EXPERTS, device="cuda", dtype=dtype)
up = nn.Parameter(torch.randn(own, WIDTH, WIDTH, device="cuda", dtype=dtype))
down = nn.Parameter(torch.randn(own, WIDTH, WIDTH, device="cuda", dtype=dtype))
optimizer = torch.optim.AdamW([*gate.parameters(), up, down])


def expert(x, number):
    return silu(x @ up[number]) @ down[number]


def by_masks(x, places, weights):
    """As DeepSeek's and transformers' models do."""
    made, masks = torch.zeros_like(x), one_hot(places, EXPERTS).permute(2, 1, 0)
    for number in range(EXPERTS):
        choice, token = torch.where(masks[number])
        if token.numel():
            made.index_add_(0, token, expert(x[token], number) * weights[token, choice, None])
    return made


def by_rows(x, places, weights):
    """As older code does: a mask of tokens chooses rows."""
    made = torch.zeros_like(x)
    for number in range(EXPERTS):
        mask = (places == number).any(-1)
        made[mask] += expert(x[mask], number) * weights.sum(-1)[mask, None]
    return made


def grouped(x, counts):
    ends = counts.cumsum(0).to(torch.int32)
    return torch._grouped_mm(silu(torch._grouped_mm(x, up, offs=ends)), down, offs=ends)


def sorted_by_expert(x, places, weights, run):
    """As torchtitan does."""
    counts = torch.histc(places.view(-1), bins=EXPERTS, min=0, max=EXPERTS - 1)
    order = torch.argsort(places.view(-1), stable=True)
    made = run(x[order // CHOSEN], counts) * weights.view(-1)[order, None]
    return torch.zeros_like(x).index_add(0, order // CHOSEN, made)


def spread(x, counts):
    """Send tokens to the ranks of their experts, and back."""
    received = torch.empty_like(counts)
    dist.all_to_all_single(received, counts)
    there, here = counts.view(ranks, -1).sum(1).tolist(), received.view(ranks, -1).sum(1).tolist()
    x = all_to_all_single_autograd(x, here, there, dist.group.WORLD)
    parts = x.split(received.tolist())
    made = [expert(torch.cat(parts[number::own]), number) for number in range(own)]
    made = torch.cat([part for one in zip(*[one.chunk(ranks) for one in made], strict=True) for part in one])
    return all_to_all_single_autograd(made, there, here, dist.group.WORLD)


for _ in range(4):
    x = torch.randn(TOKENS, WIDTH, device="cuda", dtype=dtype, requires_grad=True)
    weights, places = gate(x).softmax(-1).topk(CHOSEN, dim=-1)
    if HOW in ("masks", "rows"):
        made = {"masks": by_masks, "rows": by_rows}[HOW](x, places, weights)
    else:
        made = sorted_by_expert(x, places, weights, {"grouped": grouped, "spread": spread}[HOW])
    made.float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
