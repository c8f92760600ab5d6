"""A user's model that DistributedDataParallel trains, with its expected gradients."""

from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from ringside.real.model.user_model import build, loss
from ringside.sim.training.ddp.step import Span


class Computing:
    """The model, its inputs of this rank, and the average of all ranks' gradients.

    Each rank scales the user's inputs by its own factor. A rank has its own random numbers, which are the
    same at the start of every step, as are the buffers. ``unused`` names the trained parameters without a
    gradient.
    """

    def __init__(self, text: str, device: torch.device) -> None:
        torch.manual_seed(0)
        self.module, inputs = build(text)
        self.module.to(device)
        self.inputs: tuple[Any, ...] = tree_map_only(torch.Tensor, lambda t: _own(t).to(device), inputs)
        self.spans: list[Span] = []  # the layers of a module are not timed
        self._parameters = [p for p in self.module.parameters() if p.requires_grad]
        self._buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        self._average = self._averaged()

    def prepare(self) -> None:
        """Restore the state before the first step; not timed."""
        torch.manual_seed(1 + dist.get_rank())
        for buffer, first in self._buffers:
            buffer.copy_(first)

    def begin(self) -> None:
        """Begin a step."""

    def wrong(self) -> int:
        """Return the number of parameters whose gradient differs from the average over all ranks."""
        pairs = zip(self._parameters, self._average, strict=True)
        return sum(not _close(parameter.grad, average) for parameter, average in pairs)

    def average(self, parameter: torch.Tensor) -> torch.Tensor:
        """Return a parameter's gradient, averaged over all ranks."""
        return next(own for one, own in zip(self._parameters, self._average, strict=True) if one is parameter)

    def _averaged(self) -> list[torch.Tensor]:
        self.prepare()
        total = loss(self.module(*self.inputs))
        if not total.isfinite():
            raise SystemExit(
                f"the sum of the model's outputs is {total.item()}; write inputs that give a finite sum"
            )
        total.backward()  # type: ignore[no-untyped-call]
        averages = []
        for parameter in self._parameters:
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
            dist.all_reduce(own)
            averages.append(own / dist.get_world_size())
        self.unused = [
            name
            for name, parameter in self.module.named_parameters()
            if parameter.requires_grad and parameter.grad is None
        ]
        self.module.zero_grad(set_to_none=True)
        return averages


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """Scale floating-point inputs by rank; integers, which are indices, stay."""
    return tensor * (1 + dist.get_rank() / 64) if tensor.is_floating_point() else tensor


def _close(gradient: torch.Tensor | None, average: torch.Tensor) -> bool:
    """Whether they differ by less than sums in another order may, relative to the largest element."""
    if not average.numel():
        return True
    own = torch.zeros_like(average) if gradient is None else gradient.to_dense()
    allowed = max(1e-3, 8 * torch.finfo(average.dtype).eps)
    return bool((own - average).abs().max() <= allowed * average.abs().max())
