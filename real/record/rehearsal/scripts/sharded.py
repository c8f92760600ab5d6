"""``fully_shard``, over all ranks or over a part of them with replicas: ``sharded.py [--replicas COUNT]``."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    """Train four layers of 2.25 MiB."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=1)
    replicas = parser.parse_args().replicas
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    ranks = dist.get_world_size()
    if replicas > 1:
        names = ("replicate", "shard")
        mesh = init_device_mesh("cuda", (replicas, ranks // replicas), mesh_dim_names=names)
    else:
        mesh = init_device_mesh("cuda", (ranks,))
    model = nn.Sequential(*[nn.Sequential(nn.Linear(768, 768), nn.ReLU()) for _ in range(4)])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(12):
        model(torch.randn(64, 768, device=local)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
