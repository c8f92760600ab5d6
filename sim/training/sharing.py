"""What data-parallel ranks do about the parameters that they share, around a stage's passes."""

from typing import Protocol, runtime_checkable

from ringside.sim.training.memory import Optimizer


class Sharing(Protocol):
    """One rank's part in it, for the layers of one stage, which have numbers in forward order.

    It writes into the rank's list: what must be there before a layer computes, what may go afterwards, how
    gradients are summed. ``last`` says that this is the stage's last backward of the step, after which
    gradients are whole.
    """

    def before_forward(self, layer: int) -> None:
        """Have the layer's parameters."""
        ...

    def after_forward(self, layer: int) -> None:
        """The layer has been passed forward."""
        ...

    def before_backward(self, layer: int) -> None:
        """Have the layer's parameters, and begin to gather those of the next in backward."""
        ...

    def after_backward(self, layer: int, *, last: bool) -> None:
        """The layer's gradients are there: those of its weights too."""
        ...

    def after_step(self) -> None:
        """All passes of the step are over: have all gradients summed before the optimizer."""
        ...


@runtime_checkable
class Updating(Sharing, Protocol):
    """A `Sharing` with a part of the optimizer: it takes what the rank holds, and what follows is its own."""

    @property
    def updated_nbytes(self) -> int:
        """Bytes of the parameters that the rank's optimizer steps on."""
        ...

    def hold(self, optimizer: Optimizer) -> None:
        """Have what the rank holds all the time from the next operation on."""
        ...

    def update(self, seconds: float) -> None:
        """The optimizer's step of so many seconds, and what brings the parameters to all ranks."""
        ...


class Unshared:
    """One rank alone has the parameters: there is nothing to do."""

    def before_forward(self, layer: int) -> None:
        """Nothing."""

    def after_forward(self, layer: int) -> None:
        """Nothing."""

    def before_backward(self, layer: int) -> None:
        """Nothing."""

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Nothing."""

    def after_step(self) -> None:
        """Nothing."""


class Apart:
    """Layers of which some ranks share the experts and others all else, which comes first."""

    def __init__(self, *parts: Sharing) -> None:
        self._parts = parts

    def before_forward(self, layer: int) -> None:
        """Have the layer's parameters."""
        for part in self._parts:
            part.before_forward(layer)

    def after_forward(self, layer: int) -> None:
        """The layer has been passed forward."""
        for part in self._parts:
            part.after_forward(layer)

    def before_backward(self, layer: int) -> None:
        """Have the layer's parameters."""
        for part in self._parts:
            part.before_backward(layer)

    def after_backward(self, layer: int, *, last: bool) -> None:
        """The layer's gradients are there."""
        for part in self._parts:
            part.after_backward(layer, last=last)

    def after_step(self) -> None:
        """Have all gradients summed."""
        for part in self._parts:
            part.after_step()


class UpdatingApart(Apart):
    """`Apart` where both parts have a part of the optimizer, which steps on both at once."""

    def __init__(self, *parts: Updating) -> None:
        super().__init__(*parts)
        self._updating = parts

    @property
    def updated_nbytes(self) -> int:
        """Bytes of the parameters that the rank's optimizer steps on."""
        return sum(part.updated_nbytes for part in self._updating)

    def hold(self, optimizer: Optimizer) -> None:
        """Have what both parts hold."""
        for part in self._updating:
            part.hold(optimizer)

    def update(self, seconds: float) -> None:
        """The optimizer's step over both, and what brings the parameters to all ranks."""
        first, *others = self._updating
        first.update(seconds)
        for part in others:
            part.update(0.0)
