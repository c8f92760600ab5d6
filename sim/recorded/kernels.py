"""The kernels of PyTorch's operators: one road for recorded steps and for users' modules.

A product, a convolution and attention in one kernel are known by their shapes. Every other operator is
bounded by the bytes that it moves: what it reads and what it writes. Views and empty tensors move nothing.
"""

from collections.abc import Callable, Sequence
from math import ceil, isqrt, prod
from typing import NamedTuple

from ringside.sim.compute.kernels import Flash, Gemm, Streaming
from ringside.sim.recorded.job import Operator, Shaped

TO_DEVICE, TO_HOST = COPIES = ("copy_to_device", "copy_to_host")
"""Copies between host and device, which their link bounds."""

EMPTY = (
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh"),
    *("detach", "alias", "scalar_tensor", "record_stream", "resize_", "set_"),
)
"""Operators that move nothing."""

VIEWS = (
    *("view", "_reshape_alias", "t", "transpose", "permute", "expand", "squeeze", "unsqueeze"),
    *("select", "slice", "split", "split_with_sizes", "unbind", "unfold"),
    *("as_strided", "diagonal", "view_as_real", "view_as_complex"),
)
"""Operators whose result is a view of their input."""

ROWS = ("embedding", "index", "gather", "index_select", "_embedding_bag")
"""Operators that read as many elements of their first input as they write."""

OVERWRITES = (
    *("copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_"),
    *("_foreach_copy_", "_foreach_zero_"),
)
"""Operators that write their first input without reading it."""

GATHERED_SHARD = "fsdp.all_gather_copy_in"
"""FSDP's copy of shards into a part of the gathered buffer, its first output."""

LISTS = {"_fused_": 3 / 4, "_foreach_": 1 / 2}
"""The share of their inputs that operators on lists write in place where their outputs are not known: three
lists of a fused optimizer's four (not the gradients), one of two."""

A_LAUNCH = 144
"""Tensors of all lists together of a launch of a foreach or fused operator: 110 to 150 by the number of lists
(ATen/native/cuda/MultiTensorApply.cuh, PyTorch 2.13)."""


class Convolution(NamedTuple):
    """Convolutions of one shape, forward or backward: FLOPs, and bytes read and written.

    ``transposed`` says that tensor cores need its images transposed: their channels do not vary fastest in
    memory. A filter of 1 x 1 is a product in either order.
    """

    flops: float
    nbytes: float
    transposed: bool = False


class Unaligned(NamedTuple):
    """Products whose rows are aligned to ``alignment`` bytes, fewer than the 16 of the widest load."""

    product: Gemm
    alignment: int


class Normalization(NamedTuple):
    """Batch normalization of ``channels``, each a block of its own: ``nbytes`` bytes read and written.

    ``is_native`` says that PyTorch's own kernel does it, not cuDNN's.
    """

    nbytes: float
    channels: int
    is_native: bool


class HostCopy(NamedTuple):
    """A copy of ``nbytes`` bytes between host and device."""

    nbytes: float


OperatorKernel = Gemm | Unaligned | Flash | Convolution | Normalization | Streaming | HostCopy


def kernels(operator: Operator) -> tuple[OperatorKernel, ...]:
    """Return the kernels that an operator launches; none where it moves nothing."""
    name = short_name(operator)
    if name in COPIES:
        return (HostCopy(max(_nbytes(operator.inputs), _nbytes(operator.outputs))),)
    if name in EMPTY or name in VIEWS or name.startswith("_c10d_functional."):
        return ()
    bounded = products(operator)
    if bounded:
        alignment = dict(operator.options).get("alignment")
        return tuple(
            Unaligned(one, int(alignment)) if alignment and isinstance(one, Gemm) else one
            for one in bounded
            if one.flops
        )
    if "batch_norm" in name and operator.inputs and len(operator.inputs[0].shape) == 4:
        return (_normalization(operator),)
    nbytes = moved_nbytes(operator)
    many = is_of_lists(operator)
    return (Streaming(nbytes, ceil(len(operator.inputs) / A_LAUNCH) if many else 1),) if nbytes else ()


def is_of_lists(operator: Operator) -> bool:
    """Return whether an operator does the same to each of many tensors, as those of optimizers do."""
    name = short_name(operator)
    return name.startswith("_foreach_") or (name.startswith("_fused_") and name.endswith("_"))


def products(operator: Operator) -> tuple[Gemm | Flash | Convolution, ...]:
    """Return the kernels that FLOPs bound: products, attention, convolutions; none for other operators."""
    of = _PRODUCTS.get(short_name(operator))
    return of(operator) if of else ()


def flops(kernel: Gemm | Flash | Convolution) -> float:
    """Return the FLOPs of a kernel, backward's of attention too, which computes five products for two."""
    return kernel.flops * (2.5 if isinstance(kernel, Flash) and kernel.backward else 1)


def short_name(operator: Operator) -> str:
    """Return ``mm`` of ``aten.mm`` or ``aten.mm.default``; names of other libraries stay whole."""
    space, dot, name = operator.name.partition(".")
    return name.partition(".")[0] if dot and space == "aten" else operator.name


def moved_nbytes(operator: Operator) -> int:
    """Return the bytes that an operator bounded by memory reads and writes."""
    name, read, written = short_name(operator), _nbytes(operator.inputs), _nbytes(operator.outputs)
    if name in OVERWRITES:
        return max(read, written)
    if name == GATHERED_SHARD:
        return 2 * operator.outputs[0].nbytes
    if not written and name.endswith("_"):
        written = round(read * next((share for of, share in LISTS.items() if name.startswith(of)), 1))
    if name in ROWS:
        return _nbytes(operator.inputs[1:]) + 2 * written
    return read + written


def _nbytes(tensors: Sequence[Shaped]) -> int:
    return sum(one.nbytes for one in tensors)


def _product(operator: Operator) -> tuple[Gemm, ...]:
    left, right = operator.inputs[-2:]
    return _gemm(left, right)


def _scaled_product(operator: Operator) -> tuple[Gemm, ...]:
    return _gemm(*operator.inputs[:2])


def _grouped_product(operator: Operator) -> tuple[Gemm, ...]:
    """Return the products of experts in one launch, each of as many tokens."""
    left, right, *offsets = operator.inputs
    if len(left.shape) == len(right.shape) == 2:  # of weights' gradients: tokens are summed over
        count = offsets[0].elements
        return (Gemm(left.shape[0], right.shape[1], ceil(left.shape[1] / count), count),)
    count = (left if len(left.shape) == 3 else right).shape[0]
    rows, columns = left.shape[-2], right.shape[-1]
    if len(right.shape) == 2:
        columns = ceil(columns / count)
    elif len(left.shape) == 2:
        rows = ceil(rows / count)
    return (Gemm(rows, columns, left.shape[-1], count),)


def _gemm(left: Shaped, right: Shaped) -> tuple[Gemm, ...]:
    *batch, m, k = left.shape
    return (Gemm(m, right.shape[-1], k, prod(batch)),)


def _recurrent(operator: Operator) -> tuple[Gemm, ...]:
    """Return one layer's products in one direction: input and state times a matrix per gate, all steps."""
    rows, into, across, *_ = operator.inputs
    steps = rows.elements // rows.shape[-1]
    return tuple(Gemm(steps, one.shape[0], one.elements // one.shape[0]) for one in (into, across))


def _recurrent_back(operator: Operator) -> tuple[Gemm, ...]:
    return 2 * _recurrent(operator)


def _layers(operator: Operator) -> tuple[Gemm, ...]:
    """Return the products of recurrent layers: of all inputs at once, and of the state in each step.

    Matrices among the inputs are a layer's weights of its input and of its state, in turn.
    """
    data, *others = operator.inputs
    rows = data.elements // data.shape[-1]
    steps = min(max(int(dict(operator.options).get("steps", 1)), 1), rows)
    matrices = [one.shape for one in others if len(one.shape) == 2]
    products: list[Gemm] = []
    for (gates, width), (_, size) in zip(matrices[::2], matrices[1::2], strict=False):
        if operator.name.endswith("_backward"):
            products += [Gemm(rows // steps, size, gates)] * steps
            products += [Gemm(rows, width, gates), Gemm(gates, width, rows), Gemm(gates, size, rows)]
        else:
            products += [Gemm(rows, gates, width), *[Gemm(rows // steps, gates, size)] * steps]
    return tuple(products)


def _convolution(operator: Operator) -> tuple[Convolution, ...]:
    image, weight, *_ = operator.inputs
    transposed = dict(operator.options).get("transposed", False)
    return (_convolved(operator, image if transposed else operator.outputs[0], weight),)


def _convolution_back(operator: Operator) -> tuple[Convolution, ...]:
    """Return the gradients of image and weight, each as many FLOPs as forward, in a kernel of its own."""
    gradient, image, weight, *_ = operator.inputs
    transposed = dict(operator.options).get("transposed", False)
    count = sum(len(one.shape) == len(weight.shape) for one in operator.outputs)
    one = _convolved(operator, image if transposed else gradient, weight)
    nbytes = one.nbytes + gradient.nbytes * (len(operator.outputs) - 1)
    return (one._replace(flops=one.flops * count, nbytes=nbytes),)


def _convolved(operator: Operator, spread: Shaped, weight: Shaped) -> Convolution:
    """Return a convolution that uses the weight once for each place of ``spread`` and filter."""
    return Convolution(
        2.0 * spread.elements * prod(weight.shape[1:]),
        _nbytes(operator.inputs) + _nbytes(operator.outputs),
        prod(weight.shape[2:]) > 1 and not dict(operator.options).get("channels_last", True),
    )


def _normalization(operator: Operator) -> Normalization | Streaming:
    """Return batch norm, which reads its inputs twice, for the statistics first, and writes its result once.

    PyTorch takes cuDNN's kernel but for bfloat16 (``_select_batch_norm_backend`` of ``Normalization.cpp``).
    """
    image = operator.inputs[0]
    reads = 2 if "backward" in operator.name else 1
    nbytes = (2 * reads + 1) * image.nbytes
    if dict(operator.options).get("channels_last", True):
        return Streaming(nbytes, 2)
    return Normalization(nbytes, image.shape[1], image.dtype == "bfloat16")


def _attention(
    first: int, heads: int, tokens: int, version: int, *, backward: bool = False
) -> Callable[[Operator], tuple[Flash, ...]]:
    """Return the reader of attention, whose query is input ``first``; ``heads``, ``tokens`` are dimensions.

    Queries and keys of different lengths count as squares of as many scores.
    """

    def read(operator: Operator) -> tuple[Flash, ...]:
        query, key, value = operator.inputs[first : first + 3]
        together = prod(query.shape) // (query.shape[-1] * query.shape[tokens])
        sequence = query.shape[tokens] * key.shape[tokens]
        scored = query.shape[-1] + value.shape[-1]
        causal = bool(dict(operator.options).get("is_causal", False))
        return (Flash(together, isqrt(sequence), scored, causal, backward, version),)

    return read


_PRODUCTS: dict[str, Callable[[Operator], tuple[Gemm | Flash | Convolution, ...]]] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "addmm_", "baddbmm_", "_addmm_activation"), _product),
    "_scaled_mm": _scaled_product,
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped_product),
    **dict.fromkeys(
        ("convolution", "_convolution", "cudnn_convolution", "convolution_overrideable"), _convolution
    ),
    "convolution_backward": _convolution_back,
    **dict.fromkeys(("cudnn_rnn", "cudnn_rnn_backward"), _layers),
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": _recurrent_back,
}
for _name, _version in (("flash", 2), ("efficient", 2), ("cudnn", 3)):
    _whole = f"_scaled_dot_product_{_name}_attention"
    _PRODUCTS[_whole] = _attention(0, 1, 2, _version)
    _PRODUCTS[f"{_whole}_backward"] = _attention(1, 1, 2, _version, backward=True)
    _PRODUCTS[f"_{_name}_attention_forward"] = _attention(0, 2, 1, _version)
    _PRODUCTS[f"_{_name}_attention_backward"] = _attention(1, 2, 1, _version, backward=True)
_PRODUCTS["_scaled_dot_product_flash_attention_for_cpu"] = _attention(0, 1, 2, 2)
_PRODUCTS["_scaled_dot_product_flash_attention_for_cpu_backward"] = _attention(1, 1, 2, 2, backward=True)
