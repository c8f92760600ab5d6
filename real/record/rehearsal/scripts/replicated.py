"""DistributedDataParallel: ``replicated.py [--bucket-mb SIZE] [--micro-batches COUNT]``."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    """Train six layers of 1 MiB."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--micro-batches", type=int, default=1)
    options = parser.parse_args()
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(6)])
    model = nn.parallel.DistributedDataParallel(
        layers.to(local), device_ids=[local], bucket_cap_mb=options.bucket_mb
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(12):
        for micro in range(options.micro_batches):
            model.require_backward_grad_sync = micro == options.micro_batches - 1
            model(torch.randn(64, 512, device=local)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
