"""A model independent of a device: its tensors, and the kernels of each layer.

A layer's seconds are those of its kernels, forward and backward. Matrix products and convolutions take the
longer of their FLOPs, at a share of the peak, and their bytes; other kernels their bytes, and a launch each:

    max(flops / (peak x share), touched / (bandwidth x share)) + moved / (bandwidth x share) + launches x 10
    us

The shares are alike for all GPUs: `SHARES` of the peak, and `MEMORY_EFFICIENCY` of memory bandwidth. Bytes
are those of activations in the compute precision. What the input pipeline takes is not included.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ringside.sim.compute.prices import LAUNCH_S
from ringside.sim.workload.devices import Device, Roofline, full_name, stored
from ringside.sim.workload.workload import Layer, Tensor, Workload
from ringside.topologies.names import one_of


@dataclass(frozen=True, slots=True)
class KernelSums:
    """The kernels of a pass through a layer, with one sample.

    ``flops`` of matrix products and convolutions, and the elements that these read and write (``touched``);
    the elements that other kernels read and write (``moved``). A batch changes neither the elements of
    ``weights`` and their gradients, nor the number of ``launches`` of other kernels.
    """

    flops: float = 0.0
    touched: float = 0.0
    moved: float = 0.0
    weights: float = 0.0
    launches: int = 0

    def __add__(self, other: "KernelSums") -> "KernelSums":
        return KernelSums(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(KernelSums)))

    def of(self, elements: float) -> "KernelSums":
        """Return as many launches for that many times the elements."""
        return replace(
            self, flops=self.flops * elements, touched=self.touched * elements, moved=self.moved * elements
        )


SHARES = {"float32": 0.8}
TENSOR_CORES = 0.6
"""Shares of the peak that products and convolutions reach, by precision, and that of tensor cores.

Chosen on published steps of one GPU (`ringside.validation.published.training.ddp.single_gpu`); the median
error is the same within two points from 0.5 to 0.7 and from 0.7 to 0.85.
"""

SCORES = KernelSums(touched=2, moved=9, launches=4), KernelSums(touched=4, moved=8, launches=3)
"""What a score costs that is written: it is scaled and masked, passes softmax and dropout; and backward."""

KEPT_SCORES = 3
"""Elements kept of a score: softmax's result, dropout's and its factors."""


@dataclass(frozen=True, slots=True)
class Block:
    """One layer: its kernels forward and backward, with what backward computes again.

    ``kept`` are the elements of a sample kept for backward; ``gradients``, positions in
    `Architecture.parameters` in the order in which backward finishes them. ``convolves`` says that its flops
    are a convolution's. ``scores`` are a sample's in attention that keeps them within one kernel.
    """

    name: str
    gradients: tuple[int, ...] = ()
    forward: KernelSums = KernelSums()
    backward: KernelSums = KernelSums()
    kept: float = 0.0
    convolves: bool = False
    scores: float = 0.0

    @property
    def unfused(self) -> "Block":
        """The same if kernels write the scores, as matrix products, softmax and dropout do."""
        if not self.scores:
            return self
        forward, backward = (work.of(self.scores) for work in SCORES)
        return replace(
            self, forward=self.forward + forward, backward=self.backward + backward,
            kept=self.kept + KEPT_SCORES * self.scores,
        )  # fmt: skip


ATTENTION = ("full", "unfused")
"""Kernels of attention of all tokens to all: one, or several that write the scores."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model: parameters in definition order, buffers, and blocks in forward order.

    ``frozen_nbytes`` are the bytes of untrained parameters. ``batch`` is the default batch of a pass;
    ``mixed`` says that it is then trained under torch.autocast, ``unfused`` that its attention usually writes
    the scores. ``channels_last`` says that channels vary fastest in memory, as tensor cores need them: else
    what a convolution reads and writes is transposed; by default they do in 16 bits, as in published
    trainings. ``reentrant`` is `ringside.sim.workload.workload.Workload`'s.
    """

    name: str
    sample: str
    parameters: tuple[Tensor, ...]
    blocks: tuple[Block, ...]
    buffers: tuple[Tensor, ...] = ()
    frozen_nbytes: int = 0
    batch: int = 32
    mixed: bool = False
    unfused: bool = False
    channels_last: bool | None = None
    reentrant: bool = False

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters."""
        return sum(tensor.count for tensor in self.parameters)

    @property
    def flops(self) -> float:
        """Forward FLOPs of one sample."""
        return sum(block.forward.flops for block in self.blocks)

    def on(
        self,
        gpu: Device,
        batch: int | None = None,
        precision: str | None = None,
        dtype: str | None = None,
        efficiency: float | None = None,
    ) -> "ArchitectureOnGpu":
        """Return the model on a GPU; None keeps its own batch, precision, type and share."""
        dtype, precision = stored(dtype), full_name(precision)
        return ArchitectureOnGpu(
            self, gpu, batch or self.batch, precision or usual_precision(self, gpu), dtype, efficiency
        )

    def attending(self, attention: str) -> "Architecture":
        """Return the model with attention in one kernel (``full``) or ``unfused``; raise ValueError else."""
        if not any(block.scores for block in self.blocks):
            raise ValueError(
                f"`attention` {attention} of {self.name}, whose kernels are its own; leave it out"
            )
        if attention not in ATTENTION:
            raise ValueError(f"`attention` {attention!r} of an encoder; write {one_of(ATTENTION, attention)}")
        return replace(self, unfused=attention == "unfused")


@dataclass(frozen=True, slots=True)
class ArchitectureOnGpu:
    """A model, and how a GPU computes it; ``batch`` samples pass at once by default.

    ``efficiency`` is the share of the peak of products and convolutions, None that of their kind.
    """

    architecture: Architecture
    gpu: Device
    batch: int
    precision: str
    dtype: str | None
    efficiency: float | None

    def workload(self, batch: int | None = None) -> Workload:
        """Return a training step of ``batch`` samples."""
        return workload(
            self.architecture, self.gpu, batch or self.batch, self.precision, self.dtype, self.efficiency
        )

    @property
    def peak_s(self) -> float:
        """Seconds of a sample's products, forward and backward, at the GPU's peak, a lower bound."""
        convolving = convolves_in(self.precision, self.gpu)
        return sum(
            (block.forward.flops + block.backward.flops)
            / self.gpu.peak(convolving if block.convolves else self.precision)
            for block in self.architecture.blocks
        )

    @property
    def model_flops(self) -> float | None:
        """FLOPs of a sample's forward and backward; None if convolutions have a type of their own."""
        apart = convolves_in(self.precision, self.gpu) != self.precision
        return (
            None
            if apart and any(block.convolves for block in self.architecture.blocks)
            else 3 * self.architecture.flops
        )


@dataclass(frozen=True, slots=True)
class Module:
    """A layer of an unfinished architecture: a `Block` that still holds its tensors.

    ``parameters`` are in definition order; backward finishes the last one first where ``reversed_arrival``,
    as autograd does for a linear layer's weight and bias, else the first one.
    """

    name: str
    parameters: tuple[Tensor, ...] = ()
    buffers: tuple[Tensor, ...] = ()
    forward: KernelSums = KernelSums()
    backward: KernelSums = KernelSums()
    kept: float = 0.0
    reversed_arrival: bool = False
    convolves: bool = False
    scores: float = 0.0


def assemble(
    name: str, sample: str, modules: Sequence[Module], definition: Sequence[str] = (), **usual: Any
) -> Architecture:
    """Return an architecture of modules in forward order; other fields are `Architecture`'s.

    Tensors are defined in that order too, unless ``definition`` names all modules with tensors
    in another one.
    """
    by_name = {module.name: module for module in modules}
    assert len(by_name) == len(modules), "module names must be unique"
    defined = [by_name[name] for name in definition or by_name]
    parameters = [tensor for module in defined for tensor in module.parameters]
    position = {tensor.name: index for index, tensor in enumerate(parameters)}
    return Architecture(
        name=name,
        sample=sample,
        parameters=tuple(parameters),
        blocks=tuple(
            Block(
                name=module.name,
                gradients=tuple(
                    position[tensor.name]
                    for tensor in (module.parameters[::-1] if module.reversed_arrival else module.parameters)
                ),
                forward=module.forward,
                backward=module.backward,
                kept=module.kept,
                convolves=module.convolves,
                scores=module.scores,
            )
            for module in modules
        ),
        buffers=tuple(tensor for module in defined for tensor in module.buffers),
        **usual,
    )


@dataclass(frozen=True, slots=True)
class _Pace:
    """Rates of a layer's kernels; ``transposes``: inputs and outputs of its products are transposed."""

    roofline: Roofline
    transposes: bool

    def seconds(self, work: KernelSums, batch: int) -> float:
        moved = work.moved + (2 * work.touched if self.transposes else 0)
        computed = self.roofline.seconds(work.flops * batch, work.touched * batch + work.weights)
        return computed + self.roofline.seconds(0, moved * batch) + work.launches * LAUNCH_S


def workload(
    architecture: Architecture,
    device: Device,
    batch: int,
    precision: str | None = None,
    dtype: str | None = None,
    compute_efficiency: float | None = None,
) -> Workload:
    """Return one training step of ``batch`` samples on ``device``.

    Products are computed in ``precision``: by default torch's own float32, in which convolutions
    are tfloat32 on GPUs that have it, or torch.autocast's type for models that are usually trained so.
    Parameters and gradients are stored in ``dtype``, by default each in its own type:
    bfloat16 and bfloat16 is a model cast as a whole. ``compute_efficiency`` is a share of the peak.
    """
    precision = usual_precision(architecture, device) if precision is None else precision
    products = _Pace(rates_of(device, precision, compute_efficiency), transposes=False)
    convolving = convolves_in(precision, device)
    last = architecture.channels_last
    last = products.roofline.itemsize == 2 if last is None else last
    transposes = convolving != "float32" and not last
    convolutions = _Pace(rates_of(device, convolving, compute_efficiency), transposes)

    def layer(block: Block) -> Layer:
        pace = convolutions if block.convolves else products
        block = block.unfused if architecture.unfused else block
        kept = round(block.kept * batch * pace.roofline.itemsize)
        forward_s, backward_s = (pace.seconds(work, batch) for work in (block.forward, block.backward))
        return Layer(block.name, block.gradients, forward_s, backward_s, kept)

    return Workload(
        name=architecture.name,
        parameters=tuple(
            replace(tensor, dtype=stored(dtype) or tensor.dtype) for tensor in architecture.parameters
        ),
        layers=tuple(layer(block) for block in reversed(architecture.blocks)),
        buffers=architecture.buffers,
        frozen_nbytes=architecture.frozen_nbytes,
        reentrant=architecture.reentrant,
        batch=batch,
        sample=architecture.sample,
    )


def rates_of(device: Device, precision: str, efficiency: float | None) -> Roofline:
    """Return the rates of products and convolutions in a precision."""
    usual = SHARES.get(full_name(precision) or "", TENSOR_CORES) * device.speed
    return device.roofline(precision, usual if efficiency is None else efficiency)


def convolves_in(precision: str, device: Device) -> str:
    """Return torch's type of convolutions if products are in ``precision``."""
    return "tfloat32" if full_name(precision) == "float32" and "tfloat32" in device.flops_per_s else precision


def usual_precision(architecture: Architecture, device: Device) -> str:
    """Return the model's default precision of products."""
    return device.mixed if architecture.mixed else "float32"
