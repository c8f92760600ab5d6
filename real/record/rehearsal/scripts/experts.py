"""Experts, one a rank: tokens go to them and back in equal shares, forward and backward."""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class TokenExchange(torch.autograd.Function):
    """An all-to-all of equal shares, whose gradients go back the same way."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens of all ranks for this one."""
        there = torch.empty_like(x)
        dist.all_to_all_single(there, x.contiguous())
        return there

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        """Return the gradients to where the tokens came from."""
        back: torch.Tensor = TokenExchange.apply(gradients[0])  # type: ignore[no-untyped-call]
        return back


def main() -> None:
    """Train three layers on 256 tokens; what is not an expert is reduced."""
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    gates = nn.ModuleList(nn.Linear(512, 512) for _ in range(3)).cuda()
    experts = nn.ModuleList(nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(3)).cuda()
    optimizer = torch.optim.SGD([*gates.parameters(), *experts.parameters()], lr=0.01)
    exchange: Any = TokenExchange.apply
    for _ in range(12):
        y = torch.randn(256, 512, device="cuda")
        for gate, expert in zip(gates, experts, strict=True):
            y = y + exchange(expert(exchange(gate(y))))
        y.pow(2).mean().backward()  # type: ignore[no-untyped-call]
        works: list[Any] = [dist.all_reduce(one.grad, async_op=True) for one in gates.parameters()]
        for work in works:
            work.wait()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
