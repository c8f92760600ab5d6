"""A workload: one rank's compute in a training step, and the tensors that it shares.

It is independent of networks and libraries. Times are seconds of one rank on its own; they determine when
each gradient is ready.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import NamedTuple

from ringside.sim.collective import ITEMSIZE
from ringside.topologies.units import MAX_DURATION, MAX_SIZE, shown

MOST = MAX_SIZE
"""Maximum elements, bytes or samples on one rank."""


class WorkloadError(ValueError):
    """A workload that contradicts itself; the message lists every error, one per line."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter or a buffer of a model: ``count`` elements of ``dtype``.

    ``sparse`` says that a parameter's gradient is a sparse tensor (an embedding made with ``sparse=True``),
    which cannot share a bucket with others. ``rows`` is its length along dimension 0, in which FSDP shards
    it; by default ``count``, as of a tensor of one dimension. ``nbytes`` are the bytes of the tensor and of
    its gradient, 0 for a type that a `Workload` refuses.
    """

    name: str
    count: int
    dtype: str = "float32"
    sparse: bool = False
    rows: int | None = None
    nbytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", self.count * ITEMSIZE.get(self.dtype, 0))


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of the model computed as one: forward in ``forward_s``, backward in ``backward_s``.

    ``gradients`` are positions in `Workload.parameters`, in the order in which backward finishes them; they
    are treated as ready when the layer's backward ends. A parameter that several layers use belongs to the
    one whose backward comes last. ``activation_nbytes`` are the bytes that forward keeps for backward;
    ``forward_nbytes`` and ``backward_nbytes`` are held during that pass alone.
    """

    name: str
    gradients: tuple[int, ...] = ()
    forward_s: float = 0.0
    backward_s: float = 0.0
    activation_nbytes: int = 0
    forward_nbytes: int = 0
    backward_nbytes: int = 0


class Totals(NamedTuple):
    """Sums of a workload: bytes of all parameters, and of all gradients; seconds without communication.

    ``activation_nbytes`` are the most that the passes keep and hold at a time.
    """

    nbytes: int
    forward_s: float
    backward_s: float
    activation_nbytes: int


@dataclass(frozen=True, slots=True)
class Workload:
    """One training step of one rank, on ``batch`` samples (of kind ``sample``: an image, a sequence).

    ``parameters`` are the trained ones, in definition order, by which DistributedDataParallel numbers them;
    ``layers`` are in backward order. A parameter that no layer names gets no gradient. ``frozen_nbytes`` are
    the bytes of untrained parameters. ``reentrant`` says that checkpoints enter backward again inside
    backward. ``arrival`` are positions of the parameters in the order in which backward finishes their
    gradients; ``totals`` add seconds in the order of execution. ``workspace_nbytes`` are held by software.
    """

    name: str
    parameters: tuple[Tensor, ...]
    layers: tuple[Layer, ...]
    buffers: tuple[Tensor, ...] = ()
    batch: int = 1
    sample: str = "sample"
    frozen_nbytes: int = 0
    reentrant: bool = False
    workspace_nbytes: int = 0
    arrival: tuple[int, ...] = field(init=False, repr=False, compare=False)
    totals: Totals = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        arrival = tuple(index for layer in self.layers for index in layer.gradients)
        complaints = [
            *(
                []
                if 1 <= self.batch <= MOST
                else [f"a batch of {shown(self.batch)}; write 1 to {MOST} samples"]
            ),
            *(text for tensor in (*self.parameters, *self.buffers) for text in _tensor_complaints(tensor)),
            *(
                f"parameter {tensor.name!r} is of {tensor.dtype}, which has no gradients; write for example "
                "float32, or name it under buffers"
                for tensor in self.parameters
                if tensor.dtype in ITEMSIZE
                and not tensor.dtype.removeprefix("b").startswith(("float", "complex"))
            ),
            *_repeated("parameter", [tensor.name for tensor in self.parameters]),
            *_repeated("buffer", [tensor.name for tensor in self.buffers]),
            *(text for layer in self.layers for text in _layer_complaints(layer, len(self.parameters))),
            *_excesses(self.layers, self.batch),
            *_repeated("the gradient of parameter", list(arrival)),
        ]
        if complaints:
            raise WorkloadError("\n".join(f"{self.name}: {complaint}" for complaint in complaints))
        totals = Totals(
            sum(tensor.nbytes for tensor in self.parameters),
            reduce(add, (layer.forward_s for layer in reversed(self.layers)), 0.0),
            reduce(add, (layer.backward_s for layer in self.layers), 0.0),
            _most_held(self.layers),
        )
        object.__setattr__(self, "arrival", arrival)
        object.__setattr__(self, "totals", totals)

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters: the size in a model card."""
        return sum(tensor.count for tensor in self.parameters)


@dataclass(frozen=True, slots=True)
class TimedModel:
    """A model of timed layers, those of ``whole``; other batches take time in proportion."""

    whole: Workload
    precision: None = None
    """Timed layers do not state the precision of products."""

    @property
    def batch(self) -> int:
        """Samples that pass at once by default."""
        return self.whole.batch

    def workload(self, batch: int | None = None) -> Workload:
        """Return a training step of ``batch`` samples."""
        return rebatched(self.whole, batch or self.whole.batch)


def rebatched(workload: Workload, batch: int) -> Workload:
    """Return the workload with another batch, compute and activations in proportion to it.

    This holds while layers keep the device busy: the idle time of a small batch is not modelled.
    """
    factor = batch / workload.batch
    return replace(
        workload,
        batch=batch,
        layers=tuple(
            replace(
                layer,
                forward_s=layer.forward_s * factor,
                backward_s=layer.backward_s * factor,
                activation_nbytes=round(layer.activation_nbytes * factor),
                forward_nbytes=round(layer.forward_nbytes * factor),
                backward_nbytes=round(layer.backward_nbytes * factor),
            )
            for layer in workload.layers
        ),
    )


def _most_held(layers: Sequence[Layer]) -> int:
    """Return the most bytes of activations in forward and backward; layers are in backward order."""
    kept = most = 0
    for layer in reversed(layers):
        kept += layer.activation_nbytes
        most = max(most, kept + layer.forward_nbytes)
    for layer in layers:
        most = max(most, kept + layer.backward_nbytes)
        kept -= layer.activation_nbytes
    return most


def _tensor_complaints(tensor: Tensor) -> list[str]:
    complaints = []
    if not 0 <= tensor.count <= MOST:
        complaints.append(f"tensor {tensor.name!r} has {shown(tensor.count)} elements; write 0 to {MOST}")
    if tensor.dtype not in ITEMSIZE:
        allowed = ", ".join(ITEMSIZE)
        complaints.append(f"tensor {tensor.name!r} has dtype {tensor.dtype!r}; allowed: {allowed}")
    if tensor.rows is not None and (tensor.rows < 1 or tensor.count % tensor.rows):
        complaints.append(
            f"tensor {tensor.name!r} has {shown(tensor.rows)} rows of {shown(tensor.count)} elements; "
            "write a divisor of them"
        )
    return complaints


def _layer_complaints(layer: Layer, parameters: int) -> list[str]:
    complaints = [
        f"layer {layer.name!r} names parameter {index}; allowed: 0 to {parameters - 1}"
        for index in layer.gradients
        if not 0 <= index < parameters
    ]
    for what, number, unit, most in _quantities(layer):
        if not number >= 0:
            complaints.append(f"layer {layer.name!r} {what} {shown(number)} {unit}; write 0 to {most:.16g}")
    return complaints


def _excesses(layers: Sequence[Layer], batch: int) -> list[str]:
    """Return one error per exceeded limit, for the worst layer: a large batch affects many at once."""
    worst: dict[str, tuple[float, str]] = {}
    for layer in layers:
        for what, number, unit, most in _quantities(layer):
            if number > most and number > worst.get(what, (0, ""))[0]:
                excess = f"layer {layer.name!r} {what} {shown(number)} {unit} with a batch of {shown(batch)}"
                worst[what] = number, f"{excess}; write 0 to {most:.16g}, or a smaller batch"
    return [text for _, text in worst.values()]


def _quantities(layer: Layer) -> tuple[tuple[str, float, str, float], ...]:
    """Return a layer's limited quantities: text, number, unit, limit."""
    return (
        ("has a forward of", layer.forward_s, "s", MAX_DURATION),
        ("has a backward of", layer.backward_s, "s", MAX_DURATION),
        ("keeps", layer.activation_nbytes, "bytes", MOST),
    )


def _repeated(what: str, items: list[str] | list[int]) -> list[str]:
    seen: set[str | int] = set()
    repeated = {item: None for item in items if item in seen or seen.add(item)}  # type: ignore[func-returns-value]
    return [f"{what} {item!r} appears more than once" for item in repeated]
