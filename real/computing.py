"""A user's model as something that DistributedDataParallel trains, with the gradients that it must find."""

from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from real.user_model import build, loss
from sim.training.step import Span

_RELATIVE = 1e-3
"""Largest difference of a gradient, over its largest element: sums are taken in another order."""


class Computing:
    """The model, its inputs of this rank, and the average of all ranks' gradients.

    Random numbers are this rank's own and the same in every step.
    """

    def __init__(self, text: str, device: torch.device) -> None:
        torch.manual_seed(0)
        self.module, inputs = build(text)
        self.module.to(device)
        torch.manual_seed(1 + dist.get_rank())
        self.inputs: tuple[Any, ...] = tree_map_only(torch.Tensor, lambda t: _own(t).to(device), inputs)
        self.spans: list[Span] = []  # what its layers did nobody saw
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self._average = self._averaged()

    def begin(self) -> None:
        """The step begins now."""
        torch.manual_seed(1 + dist.get_rank())

    def wrong(self) -> int:
        """How many parameters have another gradient than the average over all ranks."""
        pairs = zip(self.parameters, self._average, strict=True)
        return sum(not _close(parameter.grad, average) for parameter, average in pairs)

    def _averaged(self) -> list[torch.Tensor]:
        self.begin()
        loss(self.module(*self.inputs)).backward()  # type: ignore[no-untyped-call]
        found = []
        for parameter in self.parameters:
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
            dist.all_reduce(own)
            found.append(own / dist.get_world_size())
        self.module.zero_grad(set_to_none=True)
        return found


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """Other numbers on every rank, in place of the same ones; whole numbers, which name things, stay."""
    return torch.randn_like(tensor) if tensor.is_floating_point() else tensor


def _close(gradient: torch.Tensor | None, average: torch.Tensor) -> bool:
    if not average.numel():
        return True
    own = torch.zeros_like(average) if gradient is None else gradient.to_dense()
    return bool((own - average).abs().max() <= _RELATIVE * average.abs().max())
