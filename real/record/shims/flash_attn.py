"""``flash_attn`` by PyTorch's own flash attention, and its fused kernels as one operator each."""

from typing import Any

import torch

from ringside.real.record.script.attention import attention
from ringside.real.record.shims.fused import fused
from ringside.real.record.shims.registry import module

PACKAGE = "flash_attn"


def flash_attn_func(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: Any = None, causal: bool = False, **_: Any
) -> Any:
    """Attention of tensors in batch, sequence, heads, size of head."""
    query, key, value = (one.transpose(1, 2) for one in (q, k, v))
    own = attention(query, key, value, None, dropout_p, causal, softmax_scale, q.shape[2] != k.shape[2])
    return own.transpose(1, 2)


def flash_attn_qkvpacked_func(qkv: Any, *args: Any, **kwargs: Any) -> Any:
    """Attention of queries, keys and values in one tensor."""
    return flash_attn_func(*qkv.unbind(2), *args, **kwargs)


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    *args: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    """Attention of sequences one after the other: as many of the longest as there is room for, else one."""
    fits = q.shape[0] % int(max_seqlen_q) == 0 and k.shape[0] % int(max_seqlen_k) == 0
    batch = q.shape[0] // int(max_seqlen_q) if fits else 1
    own = flash_attn_func(*(one.unflatten(0, (batch, -1)) for one in (q, k, v)), *args, **kwargs)
    return own.flatten(0, 1)


def layer_norm_fn(x: Any, weight: Any, bias: Any, *_: Any, **__: Any) -> Any:
    """Layer norm or RMS norm in one kernel."""
    return fused("flash_attn.layer_norm_fn", x, weight, bias)


def apply_rotary_emb(x: Any, cos: Any, sin: Any, *_: Any, **__: Any) -> Any:
    """Rotary embedding in one kernel."""
    return fused("flash_attn.apply_rotary_emb", x)


class FusedRMSNorm(torch.nn.Module):
    """``flash_attn.ops.rms_norm.RMSNorm``."""

    def __init__(self, hidden_size: int, eps: float = 1e-5, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))

    def forward(self, x: Any) -> Any:
        """Normalise."""
        return fused("flash_attn.rms_norm", x, self.weight)


def make() -> None:
    """Make the modules."""
    functions = {
        "flash_attn_func": flash_attn_func,
        "flash_attn_qkvpacked_func": flash_attn_qkvpacked_func,
        "flash_attn_varlen_func": flash_attn_varlen_func,
    }
    module("flash_attn", **functions)
    module("flash_attn.flash_attn_interface", **functions)
    module("flash_attn.layers.rotary", apply_rotary_emb=apply_rotary_emb)
    module("flash_attn.ops.triton.layer_norm", layer_norm_fn=layer_norm_fn)
    module("flash_attn.ops.rms_norm", RMSNorm=FusedRMSNorm, rms_norm=layer_norm_fn)
