"""A stage of a model on one rank: a micro-batch's passes, and data-parallel ranks' work around them."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ringside.sim.training.layers import Kernels, Pass, RankLayer
from ringside.sim.training.memory import Optimizer
from ringside.sim.training.rank import STREAM, RankList

ACTIVATIONS = "activations"
"""The pool of activations that forward keeps for backward."""


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


class Stage:
    """Writes passes into a rank's list; a whole model on one rank is one stage.

    A pass only waits for its own exchanges: the receiver of a micro-batch has the stream wait
    for it first.
    """

    def __init__(self, rank: RankList, layers: Sequence[RankLayer], sharing: Sharing, name: str = "") -> None:
        self.rank = rank
        self.layers = layers
        self.sharing = sharing
        self._name = f"{name} " if name else ""

    def pass_all(self, micro_batches: int) -> None:
        """Pass all micro-batches forward and backward, one after another: no pipeline."""
        for number in range(micro_batches):
            self.forward(number)
            self.backward(number, last=number == micro_batches - 1)

    def forward(self, micro_batch: int) -> None:
        """Pass a micro-batch forward."""
        for number, layer in enumerate(self.layers):
            self.sharing.before_forward(number)
            self.rank.take(ACTIVATIONS, layer.kept_nbytes + layer.exchanged_nbytes)
            self._pass(layer.forward, layer, "forward", micro_batch)
            self.rank.give(ACTIVATIONS, layer.exchanged_nbytes)
            self.sharing.after_forward(number)

    def backward(self, micro_batch: int, *, last: bool) -> None:
        """Pass its gradients backward, those of inputs and weights; ``last`` is `Sharing`'s."""
        for number, layer in reversed(list(enumerate(self.layers))):
            self._recompute(number, micro_batch)
            self._pass(layer.backward, layer, "backward", micro_batch)
            self.rank.give(ACTIVATIONS, layer.exchanged_nbytes)
            self._end(number, last=last)

    def input_gradient(self, micro_batch: int) -> None:
        """Pass gradients of the inputs backward, and postpone those of the weights."""
        for number, layer in reversed(list(enumerate(self.layers))):
            self._recompute(number, micro_batch)
            self._pass(layer.input_gradient, layer, "input gradient", micro_batch)
            self.rank.give(ACTIVATIONS, layer.exchanged_nbytes)

    def weight_gradient(self, micro_batch: int, *, last: bool) -> None:
        """Make the postponed gradients of the weights."""
        for number, layer in reversed(list(enumerate(self.layers))):
            self._pass(layer.weight_gradient, layer, "weight gradient", micro_batch)
            self._end(number, last=last)

    def _recompute(self, number: int, micro_batch: int) -> None:
        layer = self.layers[number]
        self.sharing.before_backward(number)
        self.rank.take(ACTIVATIONS, layer.recomputed_nbytes + layer.exchanged_nbytes)
        self._pass(layer.recomputed, layer, "recomputation", micro_batch)

    def _end(self, number: int, *, last: bool) -> None:
        layer = self.layers[number]
        # a pass without duration writes no operation: earlier work on the stream has ended by then
        place = self.rank.latest.get(STREAM, -1)
        self.rank.give(ACTIVATIONS, layer.kept_nbytes + layer.recomputed_nbytes, place)
        self.sharing.after_backward(number, last=last)

    def _pass(self, parts: Pass, layer: RankLayer, kind: str, micro_batch: int) -> None:
        name = f"{self._name}{layer.name}, micro-batch {micro_batch}"
        beside: list[int | None] = []
        for part in parts:
            if isinstance(part, Kernels):
                self.rank.compute(part.seconds, name, kind)
            else:
                group = self.rank.communicators.along(self.rank.rank, *part.dimensions)
                called = f"{kind} of {name}"
                beside.append(self.rank.call(group, part.collective, called, beside=part.overlaps))
                if part.overlaps:
                    continue
            while beside:
                self.rank.wait(beside.pop(0))
        for place in beside:
            self.rank.wait(place)
