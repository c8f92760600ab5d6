"""Kernels that shims stand for: one operator forward, one backward, by the name of the package's function."""

from typing import Any

import torch

from ringside.real.record.rules.regions import REGIONS
from ringside.real.record.script.mode import shaped
from ringside.real.record.script.tape import TAPE
from ringside.real.record.script.values import is_on_device
from ringside.sim.recorded.job import Operator


def post(name: str, inputs: Any, outputs: Any) -> None:
    """Put a kernel on the tape."""
    tensors = [[one for one in some if isinstance(one, torch.Tensor)] for some in (inputs, outputs)]
    entry = TAPE.post(Operator(name, shaped(tensors[0]), shaped(tensors[1])))
    REGIONS.see(entry, *tensors)


class _Fused(torch.autograd.Function):
    """A kernel whose result is like its first input."""

    @staticmethod
    def forward(ctx: Any, name: str, *inputs: Any) -> Any:
        ctx.name = name
        ctx.save_for_backward(*[one for one in inputs if isinstance(one, torch.Tensor)])
        ctx.has = [isinstance(one, torch.Tensor) for one in inputs]
        result = torch.empty_like(inputs[0])
        if is_on_device(result):
            post(name, inputs, [result])
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        inputs = ctx.saved_tensors
        own = [torch.empty_like(one) for one in inputs]
        if is_on_device(gradients[0]):
            post(f"{ctx.name}_backward", [*gradients, *inputs], own)
        results = iter(own)
        return (None, *[next(results) if has else None for has in ctx.has])


def fused(name: str, *inputs: Any) -> Any:
    """Return the result of a kernel, like its first input."""
    return _Fused.apply(name, *inputs)  # type: ignore[no-untyped-call]
