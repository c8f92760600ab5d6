"""Products of compiled code whose rows are not aligned: Inductor pads them (``fx_passes/pad_mm.py``).

It pads where its measurement says that this is faster, as it is where multiplying takes longer than copying.
The copy is as large as its operand; that it takes memory for a moment is left out.
"""

from dataclasses import replace

from ringside.real.record.rules.layout import VECTOR
from ringside.real.record.rules.regions import Flow, SeenTensor
from ringside.sim.recorded.job import Action, Operator

BALANCE = 150
"""FLOPs for each byte moved from which Inductor tries it: half of an H100's (``is_mm_compute_bound``)."""


def padded(action: Action, flow: Flow) -> tuple[Operator, Operator] | None:
    """Return the copy that pads an unaligned product's operands, and the product; None for others."""
    if not flow.part or not isinstance(action, Operator) or not dict(action.options).get("alignment"):
        return None
    if not _is_compute_bound(action):
        return None
    copied = tuple(seen.tensor for seen in flow.reads if not _is_aligned(seen))
    options = tuple(one for one in action.options if one[0] != "alignment")
    return Operator("inductor.constant_pad_nd", copied, copied), replace(action, options=options)


def _is_compute_bound(product: Operator) -> bool:
    left, right = product.inputs[-2:]
    flops = 2 * left.elements * right.shape[-1]
    return flops > BALANCE * sum(one.nbytes for one in (left, right, *product.outputs))


def _is_aligned(seen: SeenTensor) -> bool:
    _, shape, strides = seen.place
    itemsize = seen.tensor.nbytes // max(seen.tensor.elements, 1)
    return all(
        step * itemsize % VECTOR == 0 for extent, step in zip(shape, strides, strict=True)
        if extent > 1 and step > 1
    )  # fmt: skip
