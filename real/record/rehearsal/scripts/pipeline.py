"""A pipeline by ``torch.distributed.pipelining``: one stage a rank, 1F1B, eight micro-batches."""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the squared error."""
    return (output - target).pow(2).mean()


def main() -> None:
    """Train two matrices a stage; a micro-batch is 256 KiB."""
    dist.init_process_group("nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()).to(device)
    stage = PipelineStage(model, rank, ranks, device)
    schedule: Any = Schedule1F1B(stage, 8, loss_fn=loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(12):
        x, target = torch.randn(1024, 512, device=device), torch.randn(1024, 512, device=device)
        if rank == 0:
            schedule.step(x)
        elif rank == ranks - 1:
            schedule.step(target=target, losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
