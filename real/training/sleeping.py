"""Layers that sleep for their compute, between matrices that are really multiplied and really shared."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ringside.real.training.job import Sleeping

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class SimulatedDevice:
    """A simulated device: work begins when the previous work was due to end.

    So the host's own work in between adds nothing as long as it fits into the sleeps. After a wait for other
    ranks call `now`; the next work begins no earlier.
    """

    def __init__(self) -> None:
        self._due = 0.0

    def now(self) -> None:
        """Set the earliest begin of the next work to now."""
        self._due = time.monotonic()

    def work(self, seconds: float) -> None:
        """Be busy for ``seconds``."""
        self._due += seconds
        time.sleep(max(self._due - time.monotonic(), 0.0))


class SleepingLayer(nn.Module):
    """One layer of `ringside.real.training.job.Sleeping`.

    It sleeps at the end of its work, forward and backward, so that the sleep hides everything else it does.
    """

    def __init__(self, model: Sleeping, device: SimulatedDevice) -> None:
        super().__init__()
        self.column = _Column(model, device)
        self.row = _Row(model, device)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value after one layer."""
        outer: torch.Tensor = self.row(self.column(value))
        return outer


class SharedLayer(nn.Module):
    """A layer whose rows several ranks share: it sleeps in ``attend``, between its matrices.

    ``attend`` gets the same rows, split into ``heads``, as queries, keys and values.
    """

    def __init__(self, model: Sleeping, attend: Attend, heads: int) -> None:
        super().__init__()
        self.column = nn.Linear(model.hidden, model.inner, bias=False)
        self.row = nn.Linear(model.inner, model.hidden, bias=False)
        self._attend, self._heads = attend, heads

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value after one layer."""
        rows = self.column(value).unflatten(-1, (self._heads, -1)).transpose(0, 1)[None]
        outer: torch.Tensor = self.row(self._attend(rows, rows, rows)[0].transpose(0, 1).flatten(1))
        return outer


class SleepingPart(nn.Module):
    """Consecutive layers."""

    def __init__(self, layers: range, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(number): layer() for number in layers})

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value after these layers."""
        for layer in self.layers.values():
            value = layer(value)
        return value


class _Column(nn.Linear):
    """A matrix product that sleeps in backward, for the gradients of its input and its weight."""

    def __init__(self, model: Sleeping, device: SimulatedDevice) -> None:
        super().__init__(model.hidden, model.inner, bias=False)
        self._sleep = device, model.backward_s / 2

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = SleepBackward.apply(value, *self._sleep)  # type: ignore[no-untyped-call]
        weight = SleepBackward.apply(self.weight, *self._sleep)  # type: ignore[no-untyped-call]
        return functional.linear(value, weight)


class _Row(nn.Linear):
    """A matrix product that sleeps in forward."""

    def __init__(self, model: Sleeping, device: SimulatedDevice) -> None:
        super().__init__(model.inner, model.hidden, bias=False)
        self._device, self._seconds = device, model.forward_s

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        result = super().forward(value)
        self._device.work(self._seconds)
        return result


class SleepBackward(torch.autograd.Function):
    """The identity, whose gradient is delayed by a sleep."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, device: SimulatedDevice, seconds: float) -> torch.Tensor:
        """Return the tensor."""
        ctx.device, ctx.seconds = device, seconds
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Return its gradient after a sleep."""
        ctx.device.work(ctx.seconds)
        return gradients[0], None, None
