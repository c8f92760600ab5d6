"""A small data-parallel job; with ``skip RANK`` that rank leaves out an all-reduce of each step."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train four steps, and sum the losses of all ranks after each."""
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    model = DistributedDataParallel(torch.nn.Linear(64, 64).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    skips = int(sys.argv[2]) if sys.argv[1:2] == ["skip"] else None
    for _ in range(8):
        loss = model(torch.ones(4, 64, device=device)).sum()
        if dist.get_rank() != skips:
            dist.all_reduce(loss.detach())
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
