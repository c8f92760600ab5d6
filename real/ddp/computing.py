"""A user's model as something that DistributedDataParallel trains, with the gradients that it must find."""

from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from ringside.real.model.user_model import build, loss
from ringside.sim.training.step import Span


class Computing:
    """The model, its inputs of this rank, and the average of all ranks' gradients.

    Ranks have the user's inputs times different factors. Random numbers are a rank's own, and they
    and the buffers the same at the begin of every step. ``unused`` names the trained parameters that get no
    gradient.
    """

    def __init__(self, text: str, device: torch.device) -> None:
        torch.manual_seed(0)
        self.module, inputs = build(text)
        self.module.to(device)
        self.inputs: tuple[Any, ...] = tree_map_only(torch.Tensor, lambda t: _own(t).to(device), inputs)
        self.spans: list[Span] = []  # what its layers did nobody saw
        self._parameters = [p for p in self.module.parameters() if p.requires_grad]
        self._buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        self._average = self._averaged()

    def prepare(self) -> None:
        """Be as before the first step; not timed."""
        torch.manual_seed(1 + dist.get_rank())
        for buffer, first in self._buffers:
            buffer.copy_(first)

    def begin(self) -> None:
        """The step begins now."""

    def wrong(self) -> int:
        """How many parameters have another gradient than the average over all ranks."""
        pairs = zip(self._parameters, self._average, strict=True)
        return sum(not _close(parameter.grad, average) for parameter, average in pairs)

    def average(self, parameter: torch.Tensor) -> torch.Tensor:
        """A parameter's gradient, averaged over all ranks."""
        return next(own for one, own in zip(self._parameters, self._average, strict=True) if one is parameter)

    def _averaged(self) -> list[torch.Tensor]:
        self.prepare()
        total = loss(self.module(*self.inputs))
        if not total.isfinite():
            raise SystemExit(
                f"the sum of the model's outputs is {total.item()}; write inputs that it can take"
            )
        total.backward()  # type: ignore[no-untyped-call]
        found = []
        for parameter in self._parameters:
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
            dist.all_reduce(own)
            found.append(own / dist.get_world_size())
        self.unused = [
            name
            for name, parameter in self.module.named_parameters()
            if parameter.requires_grad and parameter.grad is None
        ]
        self.module.zero_grad(set_to_none=True)
        return found


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """Somewhat larger numbers on each rank; whole numbers, which name things, stay."""
    return tensor * (1 + dist.get_rank() / 64) if tensor.is_floating_point() else tensor


def _close(gradient: torch.Tensor | None, average: torch.Tensor) -> bool:
    """Whether they differ by less than sums in another order may, over the largest element."""
    if not average.numel():
        return True
    own = torch.zeros_like(average) if gradient is None else gradient.to_dense()
    allowed = max(1e-3, 8 * torch.finfo(average.dtype).eps)
    return bool((own - average).abs().max() <= allowed * average.abs().max())
