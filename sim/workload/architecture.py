"""A model independent of a device: its tensors, and the work of each layer.

Compute time is a roofline (Williams, Waterman and Patterson, CACM 52(4), 2009, fig. 1): a layer takes as long
as the slower of its arithmetic and its memory traffic,

    forward = max(flops / (peak x efficiency), bytes / (memory bandwidth x efficiency))

and backward, which does the work of forward once for the gradient of the input and once for that of the
weights, twice as long: less without some gradients, more with recomputation. Only matrix products and
convolutions count as flops (a multiply-add is two); everything else is memory traffic, in the compute
precision. Launch overheads, the optimizer and the input pipeline are not included, so small batches are
faster here than in reality. With the efficiencies below NVIDIA's published one-GPU throughputs of ResNet-50
and BERT (V100 and A100, large batches) are predicted at 0.56 to 1.25 of the measured ones
(tests/sim/workload/test_models.py): if the scale matters, measure one GPU and set the efficiency by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringside.sim.workload.devices import Device, full_name, stored
from ringside.sim.workload.workload import Layer, Tensor, Workload


@dataclass(frozen=True, slots=True)
class Block:
    """One layer's forward pass on one sample.

    ``flops`` of matrix products and convolutions; ``traffic``, the activations (elements) that are read and
    written; ``kept``, those kept for backward; ``gradients``, positions in `Architecture.parameters` in the
    order in which backward finishes them. ``backward`` is its time over forward's: 1 for each gradient, the
    input's and the weights', and 1 for recomputation. ``convolves`` says that its flops are a convolution's.
    """

    name: str
    gradients: tuple[int, ...] = ()
    flops: float = 0.0
    traffic: float = 0.0
    kept: float = 0.0
    backward: float = 2.0
    convolves: bool = False


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model: parameters in definition order, buffers, and blocks in forward order.

    ``frozen_nbytes`` are the bytes of untrained parameters. ``batch`` is the default batch of a pass;
    ``mixed`` says that it is then trained under torch.autocast. ``reentrant`` is
    `ringside.sim.workload.workload.Workload`'s.
    """

    name: str
    sample: str
    parameters: tuple[Tensor, ...]
    blocks: tuple[Block, ...]
    buffers: tuple[Tensor, ...] = ()
    frozen_nbytes: int = 0
    batch: int = 32
    mixed: bool = False
    reentrant: bool = False

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters."""
        return sum(tensor.count for tensor in self.parameters)

    @property
    def flops(self) -> float:
        """Forward FLOPs of one sample."""
        return sum(block.flops for block in self.blocks)

    def on(
        self, gpu: Device, batch: int | None, precision: str | None, dtype: str | None, efficiency: float
    ) -> "ArchitectureOnGpu":
        """Return the model as it is computed on a GPU; None is its own batch, precision and type."""
        dtype, precision = stored(dtype), full_name(precision)
        return ArchitectureOnGpu(
            self, gpu, batch or self.batch, precision or usual_precision(self, gpu), dtype, efficiency
        )


@dataclass(frozen=True, slots=True)
class ArchitectureOnGpu:
    """A model, and how a GPU computes it; ``batch`` samples pass at once by default."""

    architecture: Architecture
    gpu: Device
    batch: int
    precision: str
    dtype: str | None
    efficiency: float

    def workload(self, batch: int | None = None) -> Workload:
        """Return a training step of ``batch`` samples."""
        return workload(
            self.architecture, self.gpu, batch or self.batch, self.precision, self.dtype, self.efficiency
        )

    @property
    def peak_s(self) -> float:
        """Seconds of a sample's products, forward and backward, at the GPU's peak, a lower bound."""
        convolving = _convolves_in(self.precision, self.gpu)
        return sum(
            block.flops
            * (1 + block.backward)
            / self.gpu.peak(convolving if block.convolves else self.precision)
            for block in self.architecture.blocks
        )

    @property
    def model_flops(self) -> float | None:
        """FLOPs of a sample's forward and backward; None if convolutions have a type of their own."""
        apart = _convolves_in(self.precision, self.gpu) != self.precision
        return (
            None
            if apart and any(block.convolves for block in self.architecture.blocks)
            else 3 * self.architecture.flops
        )


@dataclass(frozen=True, slots=True)
class Module:
    """A layer of an unfinished architecture: a `Block` that still holds its tensors.

    ``parameters`` are in definition order; backward finishes the last one first where ``reversed_arrival``,
    as autograd does for a linear layer's weight and bias, else the first one. ``convolves`` is `Block`'s.
    """

    name: str
    parameters: tuple[Tensor, ...] = ()
    buffers: tuple[Tensor, ...] = ()
    flops: float = 0.0
    traffic: float = 0.0
    kept: float = 0.0
    reversed_arrival: bool = False
    convolves: bool = False


def assemble(
    name: str, sample: str, modules: Sequence[Module], definition: Sequence[str] = (), *, mixed: bool = False
) -> Architecture:
    """Return an architecture of modules in forward order; ``mixed`` is `Architecture`'s.

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
                flops=module.flops,
                traffic=module.traffic,
                kept=module.kept,
                convolves=module.convolves,
            )
            for module in modules
        ),
        buffers=tuple(tensor for module in defined for tensor in module.buffers),
        mixed=mixed,
    )


def workload(
    architecture: Architecture,
    device: Device,
    batch: int,
    precision: str | None = None,
    dtype: str | None = None,
    compute_efficiency: float | None = None,
    memory_efficiency: float | None = None,
) -> Workload:
    """Return one training step of ``batch`` samples on ``device``.

    Products are computed in ``precision``: by default torch's own float32, in which convolutions
    are tfloat32 on GPUs that have it, or torch.autocast's type for models that are usually trained so.
    Parameters and gradients are stored in ``dtype``, by default each in its own type:
    bfloat16 and bfloat16 is a model cast as a whole. Efficiencies are shares of the device's peaks.
    """
    precision = usual_precision(architecture, device) if precision is None else precision
    products = convolutions = device.roofline(precision, compute_efficiency, memory_efficiency)
    if _convolves_in(precision, device) != precision:
        convolutions = device.roofline("tfloat32", compute_efficiency, memory_efficiency)

    def layer(block: Block) -> Layer:
        tensors = [architecture.parameters[index] for index in block.gradients]
        weights = sum(tensor.count for tensor in tensors if not tensor.sparse)
        reached = convolutions if block.convolves else products
        forward_s = reached.seconds(block.flops * batch, block.traffic * batch + weights)
        kept = round(block.kept * batch * reached.itemsize)
        return Layer(block.name, block.gradients, forward_s, block.backward * forward_s, kept)

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


def _convolves_in(precision: str, device: Device) -> str:
    """Return torch's type of convolutions if products are in ``precision``."""
    return "tfloat32" if precision == "float32" and "tfloat32" in device.flops_per_s else precision


def usual_precision(architecture: Architecture, device: Device) -> str:
    """Return the model's default precision of products."""
    return device.mixed if architecture.mixed else "float32"
