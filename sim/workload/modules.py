"""Layers of well-known models, with the kernels that torch launches for each, forward and backward.

``positions`` is the number of vectors of the layer's width in one sample: the tokens of a sequence, the
pixels of an image. Each elementwise step is a kernel of its own, as without a compiler; attention is one
kernel that never writes the scores (Dao et al., arXiv:2205.14135), unless a block's `unfused` is asked for.
"""

from dataclasses import replace

from ringside.sim.workload.architecture import KernelSums, Module
from ringside.sim.workload.workload import Tensor


def linear(
    name: str, inputs: int, outputs: int, positions: int = 1, bias: bool = True, shares_input: bool = False
) -> Module:
    """Return a matrix product: 2 x inputs x outputs FLOPs a position.

    It keeps its input, unless that is another's too (``shares_input``), to whose gradient it then adds.
    """
    weight = Tensor(f"{name}.weight", inputs * outputs, rows=outputs)
    own = (weight, Tensor(f"{name}.bias", outputs)) if bias else (weight,)
    forward, backward = product(inputs, outputs, positions, sum(one.count for one in own))
    if bias:
        backward += KernelSums(moved=outputs * positions, launches=1)
    if shares_input:
        backward += SUM.of(inputs * positions)
    return Module(
        name, own, forward=forward, backward=backward,
        kept=0 if shares_input else inputs * positions, reversed_arrival=True,
    )  # fmt: skip


def product(inputs: int, outputs: int, positions: int, weights: int) -> tuple[KernelSums, KernelSums]:
    """Return a product, and the two for the gradients of its input and its weights."""
    forward = KernelSums(2 * inputs * outputs * positions, (inputs + outputs) * positions, weights=weights)
    return forward, forward + forward


def tied_linear(name: str, inputs: int, outputs: int, positions: int, bias: Tensor) -> Module:
    """Return a matrix product with a weight that another module owns, to whose gradient it adds."""
    untied = linear(name, inputs, outputs, positions)
    added = KernelSums(weights=3 * inputs * outputs, launches=1)
    return replace(untied, parameters=(bias,), backward=untied.backward + added)


def conv2d(
    name: str,
    inputs: int,
    outputs: int,
    kernel: int,
    side: int,
    stride: int = 1,
    bias: bool = False,
    first: bool = False,
) -> Module:
    """Return a convolution of ``side`` x ``side`` output pixels: 2 inputs kernel^2 outputs FLOPs each.

    The ``first`` one computes no gradient of its input. Each gradient is a kernel, that of the bias too.
    """
    weight = Tensor(f"{name}.weight", inputs * outputs * kernel**2, rows=outputs)
    read, written = inputs * (side * stride) ** 2, outputs * side**2
    forward = KernelSums(2 * inputs * kernel**2 * written, read + written, weights=weight.count)
    return Module(
        name,
        parameters=(weight, Tensor(f"{name}.bias", outputs)) if bias else (weight,),
        forward=forward,
        backward=(forward if first else forward + forward) + KernelSums(touched=written if bias else 0),
        kept=read,
        convolves=True,
    )


def batch_norm(name: str, channels: int, side: int) -> Module:
    """Return batch normalisation, which keeps its input; a second kernel counts the batches."""
    elements = channels * side**2
    return Module(
        name,
        parameters=(Tensor(f"{name}.weight", channels), Tensor(f"{name}.bias", channels)),
        buffers=(
            Tensor(f"{name}.running_mean", channels),
            Tensor(f"{name}.running_var", channels),
            Tensor(f"{name}.num_batches_tracked", 1, "int64"),
        ),
        forward=KernelSums(moved=2 * elements, launches=2),
        backward=KernelSums(moved=3 * elements, launches=1),
        kept=elements,
    )


def layer_norm(name: str, width: int, positions: int) -> Module:
    """Return layer normalisation in one kernel."""
    own = (Tensor(f"{name}.weight", width), Tensor(f"{name}.bias", width))
    return replace(elementwise(name, width * positions, keeps=1), parameters=own)


def embedding(name: str, entries: int, width: int, positions: int) -> Module:
    """Return a table with one row read per position; its gradient is as large as the table."""
    table = Tensor(f"{name}.weight", entries * width, rows=entries)
    return Module(
        name,
        parameters=(table,),
        forward=KernelSums(moved=2 * width * positions, launches=1),
        backward=KernelSums(moved=width * positions, weights=table.count, launches=1),
    )


def attention(name: str, width: int, heads: int, positions: int) -> Module:
    """Return scaled dot-product attention of all positions to all: 4 x positions^2 x width FLOPs.

    The whole square is counted for causal models too, as published FLOP counts do
    (Megatron-LM, arXiv:2104.04473, equation 3). Backward computes the scores again: five products, not four.
    """
    square = 2 * positions**2 * width
    return Module(
        name,
        forward=KernelSums(2 * square, 4 * width * positions),
        backward=KernelSums(5 * square, 8 * width * positions),
        kept=3 * width * positions,
        scores=heads * positions**2,
    )


def elementwise(name: str, elements: int, keeps: int = 0) -> Module:
    """Return a kernel that reads a tensor and writes one; backward reads the gradient and what was kept.

    It keeps ``keeps`` tensors beside those that the layers around it keep.
    """
    return Module(
        name,
        forward=KernelSums(moved=2 * elements, launches=1),
        backward=KernelSums(moved=3 * elements, launches=1),
        kept=keeps * elements,
    )


SUM = KernelSums(moved=3, launches=1)
"""One element of the sum of two tensors."""


def residual(name: str, elements: int) -> Module:
    """Return the sum of a branch and what went around it; backward adds the gradients of both."""
    return Module(name, forward=SUM.of(elements), backward=SUM.of(elements))


def max_pool(name: str, channels: int, side: int, stride: int = 2) -> Module:
    """Return the largest of pixels, kept with their places, of four (mixed precision) elements each."""
    read, written = channels * (side * stride) ** 2, channels * side**2
    return Module(
        name,
        forward=KernelSums(moved=read + 5 * written, launches=1),
        backward=KernelSums(moved=2 * read + 5 * written, launches=1),
        kept=5 * written,
    )


def dropout(name: str, elements: int) -> Module:
    """Return dropout, which multiplies by what it keeps."""
    work = KernelSums(moved=3 * elements, launches=1)
    return Module(name, forward=work, backward=work, kept=elements)
