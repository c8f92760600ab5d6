"""Attention of context-parallel ranks, and its gradients, equal those of one rank with all tokens."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.nn.functional import scaled_dot_product_attention

from ringside.real.training.experts import Computed, attention
from ringside.sim.training.tensor.context import BALANCED, METHODS

RANKS, TOKENS = 2, 16


def own(value: torch.Tensor, rank: int, method: str) -> torch.Tensor:
    """Return the tokens of a rank."""
    if method not in BALANCED:
        return value.chunk(RANKS, dim=2)[rank].contiguous()
    pieces = value.chunk(2 * RANKS, dim=2)
    return torch.cat([pieces[rank], pieces[-1 - rank]], dim=2)


def compare(rank: int, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    for method in METHODS:
        torch.manual_seed(0)
        whole = [torch.randn(2, 4, TOKENS, 8, requires_grad=True) for _ in range(3)]
        wanted = scaled_dot_product_attention(*whole, is_causal=True)
        weight = torch.randn_like(wanted)
        (wanted * weight).sum().backward()
        mine = [own(one.detach(), rank, method).requires_grad_() for one in whole]
        found = attention(Computed, dist.group.WORLD, method)(*mine)
        (found * own(weight, rank, method)).sum().backward()
        torch.testing.assert_close(found, own(wanted, rank, method))
        for part, one in zip(mine, whole, strict=True):
            torch.testing.assert_close(part.grad, own(one.grad, rank, method))
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.gloo
def test_shared_attention_and_its_gradients_are_those_of_one_rank(tmp_path: Path) -> None:
    multiprocessing.spawn(compare, (str(tmp_path / "store"),), nprocs=RANKS)
