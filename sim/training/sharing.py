"""Data-parallel ranks' work around the layers of one stage on one rank, as `Stage` calls for it."""

from typing import Protocol, runtime_checkable

from ringside.sim.training.memory.optimizers import Optimizer


class Sharing(Protocol):
    """One rank's data-parallel work for the layers of one stage, which are numbered in forward order.

    It writes into the rank's list: gathers before a layer computes, frees afterwards, and sums of gradients.
    ``last`` says that this is the stage's last backward of the step, after which gradients are whole.
    """

    def before_forward(self, layer: int) -> None:
        """Wait for the layer's parameters."""
        ...

    def after_forward(self, layer: int) -> None:
        """Act after the layer's forward."""
        ...

    def before_backward(self, layer: int) -> None:
        """Wait for the layer's parameters, and begin to gather those of the next in backward."""
        ...

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Act on the layer's gradients, those of its weights included."""
        ...

    def after_step(self) -> None:
        """Sum all gradients after the step's passes, before the optimizer."""
        ...


@runtime_checkable
class Updating(Sharing, Protocol):
    """A `Sharing` with a part of the optimizer: it counts the rank's memory, and runs its own update."""

    @property
    def updated_nbytes(self) -> int:
        """Bytes of the parameters that the rank's optimizer updates."""
        ...

    def hold(self, optimizer: Optimizer) -> None:
        """Hold the constant part of the rank's memory from the next operation on."""
        ...

    def update(self, seconds: float) -> None:
        """Run the optimizer's step of ``seconds``, and distribute the parameters to all ranks."""
        ...


class Unshared:
    """A rank that shares its parameters with no other."""

    def before_forward(self, layer: int) -> None:
        """Do nothing."""

    def after_forward(self, layer: int) -> None:
        """Do nothing."""

    def before_backward(self, layer: int) -> None:
        """Do nothing."""

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Do nothing."""

    def after_step(self) -> None:
        """Do nothing."""


class Apart:
    """Layers with two sharings: of all parameters except experts, which comes first, and of the experts."""

    def __init__(self, *parts: Sharing) -> None:
        self._parts = parts

    def before_forward(self, layer: int) -> None:
        """Wait for the layer's parameters."""
        for part in self._parts:
            part.before_forward(layer)

    def after_forward(self, layer: int) -> None:
        """Act after the layer's forward."""
        for part in self._parts:
            part.after_forward(layer)

    def before_backward(self, layer: int) -> None:
        """Wait for the layer's parameters."""
        for part in self._parts:
            part.before_backward(layer)

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Act on the layer's gradients."""
        for part in self._parts:
            part.after_backward(layer, last=last)

    def after_step(self) -> None:
        """Sum all gradients."""
        for part in self._parts:
            part.after_step()


class UpdatingApart(Apart):
    """`Apart` with a part of the optimizer in both, which runs on both at once."""

    def __init__(self, *parts: Updating) -> None:
        super().__init__(*parts)
        self._updating = parts

    @property
    def updated_nbytes(self) -> int:
        """Bytes of the parameters that the rank's optimizer updates."""
        return sum(part.updated_nbytes for part in self._updating)

    def hold(self, optimizer: Optimizer) -> None:
        """Hold the constant memory of both parts."""
        for part in self._updating:
            part.hold(optimizer)

    def update(self, seconds: float) -> None:
        """Run the optimizer's step over both, and distribute the parameters to all ranks."""
        first, *others = self._updating
        first.update(seconds)
        for part in others:
            part.update(0.0)
