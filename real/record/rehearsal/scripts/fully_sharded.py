"""FullyShardedDataParallel, the first one, round each layer."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class ActivatedLayer(nn.Module):
    """A matrix, 2.25 MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(768, 768)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's activations."""
        y: torch.Tensor = self.linear(x).relu()
        return y


def main() -> None:
    """Train four layers."""
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    model = FullyShardedDataParallel(
        nn.Sequential(*[ActivatedLayer() for _ in range(4)]),
        auto_wrap_policy=ModuleWrapPolicy({ActivatedLayer}),
        device_id=torch.device("cuda", local),
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(12):
        model(torch.randn(64, 768, device=local)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
