"""Kernels that a module launches, forward and backward, recorded while it runs on any tensors.

A kernel reads its inputs and writes its outputs: the dimensions of a tensor that repeat it count once, views
and empty tensors cost nothing, and what is changed in place is read and written. A table's rows are read
where they are looked up, and nowhere else. ``weights`` are the bytes of the module's own tensors and of their
gradients, which do not depend on the batch; the gradients are known by their shape.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ringside.sim.compute.kernels import Flash, Gemm
from ringside.sim.recorded.job import Operator, Shaped
from ringside.sim.recorded.kernels import EMPTY, ROWS, Convolution, flops, products

PRODUCT, CONVOLUTION, ATTENTION, MEMORY = KINDS = ("product", "convolution", "attention", "memory")
"""What bounds a kernel: the last is bounded by the bytes that it moves, and has no FLOPs."""


@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """An operation of ``layer``, with its FLOPs, the bytes that it moves, and those of weights among them.

    ``shape`` are the count, rows, columns and inner length of a matrix product. ``launches`` are more than
    one if a loop over time is one operation.
    """

    name: str
    layer: str
    backward: bool
    kind: str
    nbytes: int
    weights: int = 0
    flops: int = 0
    shape: tuple[int, ...] = ()
    launches: int = 1


@dataclass(slots=True)
class CalledModules:
    """Modules in call order: a kernel belongs to the last one, in backward to that of its node."""

    current: str = ""
    numbers: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def start(self, name: str) -> None:
        """Note that a module is called."""
        self.current = name
        self.numbers.append(torch._C._autograd._get_sequence_nr())
        self.names.append(name)

    def behind(self, node: Any) -> None:
        """Turn to the module that made a node of backward; nodes of parameters have no number."""
        place = bisect_right(self.numbers, node._sequence_nr()) - 1
        if place >= 0 and node._sequence_nr() < 2**63:
            self.current = self.names[place]


class KernelRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records each kernel; ``own`` are the module's tensors.

    ``channels_last`` becomes true when a convolution reads an image whose channels vary fastest in memory.
    """

    def __init__(self, own: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        own = list(own)
        self.own = {storage(tensor) for tensor in own}
        self.shapes = {_lengths(tensor) for tensor in own}
        self.calls = CalledModules()
        self.kernels: list[RecordedKernel] = []
        self.channels_last = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        read, written = tensors((args, kwargs)), tensors(outputs)
        name = func.overloadpacket.__name__
        view = not func._schema.is_mutable and {*map(storage, read)}.issuperset(map(storage, written))
        node = torch._C._current_autograd_node()
        if read and not view and name not in EMPTY and not _takes_gradient(node):
            if node is not None and not torch.is_grad_enabled():
                self.calls.behind(node)
            if name in ROWS:
                read = [*read[1:], *written]
            elif name == "convolution_backward":
                read += read[:1] * (len(written) - 1)  # one kernel for each gradient
            self.kernels.append(self._kernel(name, node is not None, read, written, args))
        return outputs

    def _kernel(
        self,
        name: str,
        backward: bool,
        read: list[torch.Tensor],
        written: list[torch.Tensor],
        args: tuple[Any, ...],
    ) -> RecordedKernel:
        bounded = products(operator(name, tensors(args), written, args))
        if name == "convolution":
            self.channels_last |= not args[0].is_contiguous() and _is_channels_last(args[0])
        moved = [*map(_nbytes, read), *map(_nbytes, written)]
        fixed = [
            storage(one) in self.own or (backward and _lengths(one) in self.shapes)
            for one in (*read, *written)
        ]
        return RecordedKernel(
            name, self.calls.current, backward,
            kind=_KINDS[type(bounded[0])] if bounded else MEMORY,
            nbytes=sum(moved),
            weights=sum(nbytes for nbytes, own in zip(moved, fixed, strict=True) if own),
            flops=int(sum(map(flops, bounded))),
            shape=_shape(bounded[0]) if name in ("mm", "addmm", "bmm", "baddbmm") else (),
            launches=args[0].shape[0] if name.startswith("mkldnn_rnn_layer") else 1,
        )  # fmt: skip


def _lengths(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the lengths of dimensions in any order, by which a gradient is known."""
    return tuple(sorted(length for length in tensor.shape if length != 1))


def _takes_gradient(node: Any) -> bool:
    """Return whether a gradient is stored: it is copied only because a recorder holds it too."""
    return node is not None and node.name().endswith("AccumulateGrad")


def _is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)


def _nbytes(tensor: torch.Tensor) -> int:
    elements = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= length if stride else 1
    return elements * tensor.element_size()


def _shape(product: Any) -> tuple[int, ...]:
    return product.products, product.m, product.n, product.k


_KINDS = {Gemm: PRODUCT, Convolution: CONVOLUTION, Flash: ATTENTION}


def operator(
    name: str, read: Iterable[torch.Tensor], written: Iterable[torch.Tensor], args: tuple[Any, ...]
) -> Operator:
    """Return an operator of aten as plain data."""
    transposed = bool(name == "convolution" and args[6]) or (name == "convolution_backward" and args[7])
    return Operator(
        f"aten.{name}", tuple(map(_shaped, read)), tuple(map(_shaped, written)),
        (("transposed", True),) if transposed else (),
    )  # fmt: skip


def _shaped(tensor: torch.Tensor) -> Shaped:
    return Shaped(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in a tree of containers."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def storage(tensor: torch.Tensor) -> int:
    """Return the identity of a tensor's memory."""
    return int(tensor.untyped_storage()._cdata)
