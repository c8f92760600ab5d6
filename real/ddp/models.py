"""What DistributedDataParallel trains: a user's model, or a workload's parameters with sleeping layers."""

import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map_only

from ringside.real.model.user_model import build, loss
from ringside.sim.training.ddp.step import Activity
from ringside.sim.workload.workload import Layer, Tensor, Workload


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
        self.spans: list[Activity] = []  # the layers of a module are not timed
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
    """Return whether two tensors differ by no more than rounding, relative to the largest element."""
    if not average.numel():
        return True
    own = torch.zeros_like(average) if gradient is None else gradient.to_dense()
    allowed = max(1e-3, 8 * torch.finfo(average.dtype).eps)
    return bool((own - average).abs().max() <= allowed * average.abs().max())


class SleepingModel(nn.Module):
    """The workload's parameters, and layers that sleep for its times.

    A layer begins when the previous one was due to end, as on an asynchronous device: the host's own work in
    between, and late wake-ups, add nothing as long as they fit into the layers' times. All of a rank's
    gradients are its number plus 1, so their average is known. Each sleep takes ``slowdown`` times as long,
    times a random lognormal factor of ``sigma``. ``spans`` are the layers' spans since `begin`, on the
    monotonic clock.
    """

    def __init__(self, workload: Workload, slowdown: float = 1.0, sigma: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        self._slowdown, self._sigma = slowdown, sigma
        self._rng = np.random.default_rng([seed, dist.get_rank()])
        self.spans: list[Activity] = []
        self.inputs = (torch.zeros(1, requires_grad=True),)  # so that every layer has a backward pass
        self._due = 0.0
        self._workload = workload
        self._gradient = dist.get_rank() + 1.0
        self.tensors = nn.ParameterList(
            torch.zeros(_shape(tensor), dtype=getattr(torch, tensor.dtype)) for tensor in workload.parameters
        )

        for number, buffer in enumerate(workload.buffers):
            data = torch.zeros(buffer.count, dtype=getattr(torch, buffer.dtype))
            self.register_buffer(f"buffer{number}", data)

    @property
    def module(self) -> nn.Module:
        """Return the module that DistributedDataParallel wraps."""
        return self

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value after one forward pass."""
        for layer in reversed(self._workload.layers):
            tensors = [self.tensors[index] for index in layer.gradients]
            value = _Sleep.apply(value, self, layer, *tensors)  # type: ignore[no-untyped-call]
        return value

    def prepare(self) -> None:
        """Do nothing: no state changes here."""

    def begin(self) -> None:
        """Begin a step."""
        self.spans.clear()
        self._due = time.monotonic()

    def wrong(self) -> int:
        """Return the number of parameters whose gradient differs from the average over all ranks."""
        average = (dist.get_world_size() + 1) / 2
        gradients = [self.tensors[index].grad for index in self._workload.arrival]
        return sum(grad is None or not bool((grad == average).all()) for grad in gradients)

    def average(self, parameter: torch.Tensor) -> torch.Tensor:
        """Return a parameter's gradient, averaged over all ranks."""
        return torch.full_like(parameter, (dist.get_world_size() + 1) / 2)

    def sleep(self, kind: str, layer: Layer, seconds: float) -> None:
        """Sleep until the layer is due to end."""
        factor = self._slowdown * (float(self._rng.lognormal(0.0, self._sigma)) if self._sigma else 1.0)
        begin, self._due = self._due, self._due + seconds * factor
        time.sleep(max(self._due - time.monotonic(), 0.0))
        self.spans.append(Activity(begin, self._due, kind, layer.name))

    def gradients(self, layer: Layer) -> list[torch.Tensor]:
        """Return new gradients of the layer's parameters."""
        return [torch.full_like(self.tensors[index], self._gradient) for index in layer.gradients]


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return (tensor.count,) if tensor.rows is None else (tensor.rows, tensor.count // tensor.rows)


class _Sleep(torch.autograd.Function):
    """One layer's sleep, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any, value: torch.Tensor, model: SleepingModel, layer: Layer, *_: torch.Tensor
    ) -> torch.Tensor:
        ctx.model, ctx.layer = model, layer
        model.sleep("forward", layer, layer.forward_s)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *values: torch.Tensor) -> Any:
        gradients = ctx.model.gradients(ctx.layer)
        ctx.model.sleep("backward", ctx.layer, ctx.layer.backward_s)
        return values[0], None, None, *gradients
