"""Attention of context-parallel ranks: torch's own rings and gathers, and Ulysses' all-to-alls.

torch 2.13 replaces attention on GPUs only: its dispatcher has no CPU kernel. The function that it would call
is called here with the CPU kernel (``_templated_ring_attention`` of torch.distributed.tensor.experimental);
Ulysses, which torch lacks, is written with its functional collectives.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.tensor.experimental._context_parallel import _attention as rings

from ringside.real.training.job import Sleeping
from ringside.real.training.sleeping import SimulatedDevice
from ringside.sim.training.tensor.context import BALANCED, UNMASKED

Tensors = tuple[torch.Tensor, ...]


class Kernel(Protocol):
    """Attention of queries with keys, shaped batch x heads x tokens x width, and its gradients."""

    def forward(self, *arguments: Any, **options: Any) -> Tensors:
        """Return the output, and the logarithm of the sum of each row's exponents."""
        ...

    def backward(self, *arguments: Any, **options: Any) -> Tensors:
        """Return the gradients of queries, keys and values."""
        ...


class Computed:
    """The CPU kernel."""

    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Slept:
    """A kernel that sleeps for its share of a layer's scores; the causal mask removes half of these."""

    def __init__(self, model: Sleeping, device: SimulatedDevice) -> None:
        self._model, self._device = model, device

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> Tensors:
        """Return the queries after a sleep."""
        share = self._share(query, key, options["is_causal"])
        self._device.work(self._model.forward_s * share * (1.0 if options["is_causal"] else UNMASKED))
        return query.clone(), query.new_zeros(query.shape[:3])

    def backward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any
    ) -> Tensors:
        """Return the inputs after a sleep."""
        self._device.work(self._model.backward_s * self._share(query, key, options["is_causal"]))
        return query, key, value

    def _share(self, query: torch.Tensor, key: torch.Tensor, causal: bool) -> float:
        heads = query.shape[1] * query.shape[3] / self._model.inner
        scores = query.shape[2] * key.shape[2] * (1 if causal else 2)
        return heads * scores / self._model.rows**2


def attention(kernel: Kernel, group: dist.ProcessGroup | None, method: str) -> Callable[..., torch.Tensor]:
    """Return causal attention over queries, keys and values sharded by tokens over the group's ranks."""
    function = _Ulysses if method == "ulysses" else _Ring

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = function.apply(query, key, value, kernel, group, method)  # type: ignore[no-untyped-call]
        return result

    return attend


class _Ring(torch.autograd.Function):
    """torch's rings, with the tokens balanced or in order, or its gather."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kernel: Kernel, *how: Any
    ) -> torch.Tensor:
        group, method = how
        _choose(method)
        out, rows = rings._templated_ring_attention(
            group, 2, kernel.forward, query, key, value, is_causal=True, dropout_p=0.0
        )
        ctx.save_for_backward(query, key, value, out, rows)
        ctx.how = kernel, group, method
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        kernel, group, method = ctx.how
        _choose(method)
        query, key, value, out, rows = ctx.saved_tensors
        result = rings._templated_ring_attention_backward(
            group, 2, kernel.backward, gradients[0], "grad_out", query, key, value, out, rows, is_causal=True,
            dropout_p=0.0,
        )  # fmt: skip
        return *result[:3], None, None, None


class _Ulysses(torch.autograd.Function):
    """Ulysses: exchange tokens so that each rank has all tokens of some heads, and back."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kernel: Kernel, *how: Any
    ) -> torch.Tensor:
        group, _ = how
        inputs = [_to_heads(one, group) for one in (query, key, value)]
        out, rows = kernel.forward(*inputs, is_causal=True, dropout_p=0.0)
        ctx.save_for_backward(*inputs, out, rows)
        ctx.how = kernel, group
        return _to_tokens(out, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        kernel, group = ctx.how
        names = ("query", "key", "value", "out", "logsumexp")
        result = kernel.backward(
            grad_out=_to_heads(gradients[0], group), **dict(zip(names, ctx.saved_tensors, strict=True)),
            is_causal=True, dropout_p=0.0,
        )  # fmt: skip
        return *(_to_tokens(one, group) for one in result), None, None, None


def _choose(method: str) -> None:
    """Set the method by which torch rotates keys and values."""
    rings._cp_options.enable_load_balance = method in BALANCED
    gathers = method == "all-gather"
    rotates = rings._RotateMethod.ALL_GATHER if gathers else rings._RotateMethod.ALL_TO_ALL
    rings._cp_options.rotate_method = rotates


def _to_heads(value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return all tokens of this rank's heads, from some tokens of all heads."""
    sent = torch.cat(value.chunk(group.size(), dim=1))
    return torch.cat(_exchanged(sent, group).chunk(group.size()), dim=2)


def _to_tokens(value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return some tokens of all heads, from all tokens of this rank's heads."""
    sent = torch.cat(value.chunk(group.size(), dim=2))
    return torch.cat(_exchanged(sent, group).chunk(group.size()), dim=1)


def _exchanged(value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    sent = functional.all_to_all_single(value.contiguous(), None, None, group)
    result: torch.Tensor = functional.wait_tensor(sent)  # type: ignore[no-untyped-call]
    return result
