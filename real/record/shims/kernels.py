"""Kernels of PyTorch's own whose shapes or strides only a GPU knows: norms, GRUs, products, convolutions.

Optimizers with a learning rate in a tensor have a kernel of their own, too.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._meta_registrations import _create_grouped_mm_output_tensor
from torch._subclasses.fake_impls import conv as _conv
from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from ringside.real.record.rules.layout import has_channels_last

aten = torch.ops.aten


def _per_channel(count: int) -> Callable[..., Any]:
    """Return what makes ``count`` vectors of one number a channel, float32 for 16 bits."""

    def shapes(mode: Any, func: Any, data: torch.Tensor, *args: Any, **_: Any) -> Any:
        source = args[0] if func is aten.batch_norm_backward_reduce.default else data
        dtype = torch.promote_types(source.dtype, torch.float32)
        with mode:
            return tuple(source.new_empty(source.shape[1], dtype=dtype) for _ in range(count))

    return shapes


def _like_first(mode: Any, func: Any, data: torch.Tensor, *_: Any, **__: Any) -> Any:
    with mode:
        return torch.empty_like(data)


def _gru(mode: Any, func: Any, gates: Any, _: Any, state: torch.Tensor, *__: Any, **___: Any) -> Any:
    """Return the new state, and what backward needs of it: five numbers for each."""
    with mode:
        return torch.empty_like(state), state.new_empty(state.shape[0], 5 * state.shape[1])


def _gru_gradients(mode: Any, func: Any, gradient: torch.Tensor, *_: Any, **__: Any) -> Any:
    """Return gradients of both sides' three gates, of the state, and of both biases."""
    batch, width = gradient.shape
    with mode:
        gates = [gradient.new_empty(batch, 3 * width) for _ in range(2)]
        biases = [gradient.new_empty(3 * width) for _ in range(2)]
        return (*gates, torch.empty_like(gradient), *biases)


def _nothing(*_: Any, **__: Any) -> None:
    """Return nothing, as what changes its arguments does."""


def _grouped(
    mode: Any, func: Any, one: torch.Tensor, other: torch.Tensor, offs: Any = None, bias: Any = None,
    out_dtype: Any = None,
) -> Any:  # fmt: skip
    """Return the products of groups; a GPU takes 32 bits too."""
    with mode:
        product: Any = _create_grouped_mm_output_tensor
        return product(one, other, offs, out_dtype or one.dtype)


def _convolution(
    mode: Any, func: Any, image: torch.Tensor, weight: torch.Tensor, *more: Any, **named: Any
) -> Any:
    """Return a convolution's result, channels last if its image or weight is, as cuDNN has it.

    The rule is ``cudnn_conv_suggest_memory_format`` of PyTorch's ``ATen/native/ConvUtils.h``.
    """
    result = _conv(mode, func, image, weight, *more, **named)
    return _as_by_cudnn(result, image, weight)


def _convolution_gradients(
    mode: Any, func: Any, gradient: torch.Tensor, image: torch.Tensor, weight: torch.Tensor, *more: Any,
    **named: Any,
) -> Any:  # fmt: skip
    """Return the gradients of image and weight, channels last if these are, and of the bias."""
    *own, bias = _conv(mode, func, gradient, image, weight, *more, **named)
    return (*(_as_by_cudnn(one, image, weight) for one in own), bias)


def _as_by_cudnn(result: Any, *inputs: torch.Tensor) -> Any:
    is_last = any(one.ndim == 4 and has_channels_last(one) for one in inputs)
    if result is None or not is_last:
        return result
    with in_kernel_invocation_manager(result.fake_mode):
        own = torch.empty(result.shape, dtype=result.dtype, device="meta", memory_format=torch.channels_last)
    return FakeTensor(result.fake_mode, own, result.fake_device)


_SHAPES: dict[Any, Callable[..., Any]] = {
    aten.batch_norm_stats.default: _per_channel(2),
    aten.batch_norm_gather_stats.default: _per_channel(2),
    aten.batch_norm_gather_stats_with_counts.default: _per_channel(2),
    aten.batch_norm_elemt.default: _like_first,
    aten.batch_norm_backward_reduce.default: _per_channel(4),
    aten.batch_norm_backward_elemt.default: _like_first,
    aten._grouped_mm.default: _grouped,
    aten._thnn_fused_gru_cell.default: _gru,
    aten._thnn_fused_gru_cell_backward.default: _gru_gradients,
    aten._fused_adam_.tensor_lr: _nothing,
    aten._fused_adamw_.tensor_lr: _nothing,
    aten._fused_sgd_.tensor_lr: _nothing,
}


def install() -> None:
    """Tell fake tensors the shapes."""
    for one, shapes in _SHAPES.items():
        register_op_impl(one)(shapes)
    op_implementations_dict[aten.convolution.default] = _convolution
    op_implementations_dict[aten.convolution_backward.default] = _convolution_gradients
