"""Kernels that a GPU would run, where C++ asks a table for them that has no ``cuda`` here."""

from typing import Any

import torch

_FLASH_HEAD = 256
"""The largest head of flash attention, ``sdp_utils.cpp``."""

_ONE_KERNEL = ("_fused_rms_norm", "silu_backward", "mish_backward")
"""Operators of aten with a kernel of CUDA that C++ takes apart on a device without one: those in PyTorch's
``native_functions.yaml`` with ``CUDA`` or a structured kernel beside ``CompositeImplicitAutograd``."""

_library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]

_before = torch.nn.functional.scaled_dot_product_attention
_ctc_before: Any = torch.ctc_loss


def install() -> None:
    """Put the functions in place."""
    from torch.nn.attention import flex_attention

    torch.nn.functional.scaled_dot_product_attention = attention
    vars(torch._C._nn)["scaled_dot_product_attention"] = attention
    vars(torch)["ctc_loss"] = _ctc_loss
    vars(flex_attention)["flex_attention"] = _flexible
    for name in _ONE_KERNEL:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CUDA"):
            _library.impl(name, _never_run, "CUDA")  # type: ignore[no-untyped-call]


def _never_run(*_: Any, **__: Any) -> Any:
    """Stand for a kernel: operators of fake tensors do not come so far."""
    raise NotImplementedError


def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Do ``scaled_dot_product_attention`` as ``sdp_utils.cpp`` chooses.

    That is flash for 16 bits without a mask, several operators where keys have fewer heads or a mask's
    columns are not beside each other (``check_last_dim_stride_equals_1_dense``), else memory-efficient. Which
    kernel these are is up to the GPU.
    """
    if query.device.type != "cuda" or query.ndim != 4:
        more = {"scale": scale, "enable_gqa": enable_gqa}
        return _before(query, key, value, attn_mask, dropout_p, is_causal, **more)
    query, key, value, attn_mask = map(by_autocast, (query, key, value, attn_mask))
    aten: Any = torch.ops.aten
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    if is_half and attn_mask is None and query.shape[-1] <= _FLASH_HEAD:
        flash = aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    if query.shape[1] != key.shape[1] or (attn_mask is not None and attn_mask.stride(-1) != 1):
        return aten._scaled_dot_product_attention_math(
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )[0]
    if attn_mask is not None:
        attn_mask = attn_mask.to(query.dtype) if attn_mask.dtype == torch.bool else attn_mask
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    efficient = aten._scaled_dot_product_efficient_attention
    needs = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
    return efficient(query, key, value, attn_mask, needs, dropout_p, is_causal, scale=scale)[0]


def by_autocast(tensor: Any) -> Any:
    """Return a tensor in autocast's type, which is that of attention as of products, ``autocast_mode.h``."""
    is_cast = torch.is_autocast_enabled("cuda") and tensor is not None and tensor.is_floating_point()
    if not is_cast or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype("cuda"))


def _flexible(query: Any, key: Any, value: Any, *_: Any, scale: Any = None, **more: Any) -> Any:
    """Do ``flex_attention`` as causal attention: its mask is a function."""
    enable_gqa = bool(more.get("enable_gqa"))
    return attention(query, key, value, is_causal=True, scale=scale, enable_gqa=enable_gqa)


def _ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *more: Any, **options: Any
) -> Any:
    """Do ``ctc_loss``: C++ reads the lengths, but leaves those of fake tensors on their device."""
    read = (one.tolist() if isinstance(one, torch.Tensor) else one for one in (input_lengths, target_lengths))
    return _ctc_before(log_probs, targets, *read, *more, **options)
