"""The layers of networks, each with its tensors and the work of one sample.

Names and order of tensors are those of the ``torch.nn`` module of the same name. ``positions`` is the number
of vectors of the layer's width in one sample: the tokens of a sequence, the pixels of an image.
Traffic counts each elementwise step as a kernel of its own that reads its inputs and writes its output
(one read more for the statistics of a batch norm), and attention as one fused kernel that never
writes the scores, as torch's scaled_dot_product_attention (Dao et al., arXiv:2205.14135).
"""

from ringside.sim.workload.architecture import Module
from ringside.sim.workload.workload import Tensor


def linear(
    name: str,
    inputs: int,
    outputs: int,
    positions: int = 1,
    bias: bool = True,
    shares_input: bool = False,
) -> Module:
    """Return a matrix product: 2 x inputs x outputs FLOPs a position; it keeps its input unless shared."""
    weight = (Tensor(f"{name}.weight", inputs * outputs, rows=outputs),)
    return Module(
        name,
        parameters=(*weight, Tensor(f"{name}.bias", outputs)) if bias else weight,
        flops=2 * inputs * outputs * positions,
        traffic=(inputs + outputs) * positions,
        kept=0 if shares_input else inputs * positions,
        reversed_arrival=True,
    )


def tied_linear(name: str, inputs: int, outputs: int, positions: int, bias: Tensor | None = None) -> Module:
    """Return a matrix product with a weight that another module owns."""
    untied = linear(name, inputs, outputs, positions)
    return Module(name, () if bias is None else (bias,), (), untied.flops, untied.traffic, untied.kept)


def conv2d(
    name: str, inputs: int, outputs: int, kernel: int, side: int, stride: int = 1, bias: bool = False
) -> Module:
    """Return a convolution of ``side`` x ``side`` output pixels: 2 inputs kernel^2 outputs FLOPs each."""
    weight = (Tensor(f"{name}.weight", inputs * outputs * kernel**2, rows=outputs),)
    read = inputs * (side * stride) ** 2
    return Module(
        name,
        parameters=(*weight, Tensor(f"{name}.bias", outputs)) if bias else weight,
        flops=2 * inputs * kernel**2 * outputs * side**2,
        traffic=read + outputs * side**2,
        kept=read,
        convolves=True,
    )


def batch_norm(name: str, channels: int, side: int) -> Module:
    """Return batch normalisation: it reads its input twice, writes once, keeps the input."""
    elements = channels * side**2
    return Module(
        name,
        parameters=(Tensor(f"{name}.weight", channels), Tensor(f"{name}.bias", channels)),
        buffers=(
            Tensor(f"{name}.running_mean", channels),
            Tensor(f"{name}.running_var", channels),
            Tensor(f"{name}.num_batches_tracked", 1, "int64"),
        ),
        traffic=3 * elements,
        kept=elements,
    )


def layer_norm(name: str, width: int, positions: int) -> Module:
    """Return layer normalisation in one kernel."""
    return Module(
        name,
        parameters=(Tensor(f"{name}.weight", width), Tensor(f"{name}.bias", width)),
        traffic=2 * width * positions,
        kept=width * positions,
    )


def embedding(name: str, entries: int, width: int, positions: int) -> Module:
    """Return a table with one row read per position."""
    table = Tensor(f"{name}.weight", entries * width, rows=entries)
    return Module(name, parameters=(table,), traffic=2 * width * positions)


def attention(name: str, width: int, positions: int) -> Module:
    """Return scaled dot-product attention of all positions to all: 4 x positions^2 x width FLOPs.

    The whole square is counted for causal models too, as published FLOP counts do
    (Megatron-LM, arXiv:2104.04473, equation 3).
    """
    return Module(
        name,
        flops=4 * positions**2 * width,
        traffic=4 * width * positions,
        kept=3 * width * positions,
    )


def elementwise(name: str, elements: int, inputs: int = 1, keeps: int = 0) -> Module:
    """Return a kernel that reads ``inputs`` tensors and writes one: an activation, a sum.

    It keeps ``keeps`` tensors beside those that the layers around it keep.
    """
    return Module(name, traffic=(inputs + 1) * elements, kept=keeps * elements)
