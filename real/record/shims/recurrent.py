"""LSTMs and GRUs in one call of cuDNN, forward and backward: C++ takes them apart on a device without it."""

from collections.abc import Sequence
from typing import Any

import torch

from ringside.real.record.rules.regions import REGIONS
from ringside.real.record.script.attention import by_autocast
from ringside.real.record.script.mode import shaped
from ringside.real.record.script.tape import TAPE
from ringside.real.record.script.values import is_on_device
from ringside.sim.recorded.job import Operator

KEPT = 6
"""Elements that cuDNN keeps for backward of each of a layer's: an LSTM's gates, its cell before and after."""


class _Layers(torch.autograd.Function):
    """All layers of an LSTM or GRU."""

    @staticmethod
    def forward(ctx: Any, steps: int, width: int, data: Any, *tensors: Any) -> Any:
        ctx.steps = steps
        states = [one for one in tensors if one.ndim == 3]
        output = data.new_empty((*data.shape[:-1], width))
        layers, _, size = states[0].shape
        kept = data.new_empty(KEPT * layers * size * (data.numel() // data.shape[-1]))
        results = [output, *map(torch.empty_like, states)]
        _post("cudnn_rnn", steps, (data, *tensors), (*results, kept))
        ctx.save_for_backward(data, *tensors, output, kept)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        data, *tensors, output, kept = ctx.saved_tensors
        own = [torch.empty_like(one) for one in (data, *tensors)]
        given = [one for one in gradients if one is not None]
        _post("cudnn_rnn_backward", ctx.steps, (data, *tensors, output, kept, *given), own)
        return (None, None, *own)


def _post(name: str, steps: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    entry = TAPE.post(Operator(name, shaped(inputs), shaped(outputs), (("steps", steps),)))
    REGIONS.see(entry, list(inputs), list(outputs))


def _by_cudnn(before: Any) -> Any:
    """Return what runs padded sequences of the device in one call, and has ``before`` do all else."""

    def run(data: Any, states: Any, weights: Any, *more: Any) -> Any:
        if not (is_on_device(data) and isinstance(weights, list | tuple) and data.ndim == 3):
            return before(data, states, weights, *more)
        *_, is_two_way, has_batch_first = more
        own = [states] if isinstance(states, torch.Tensor) else list(states)
        cast = [by_autocast(one) for one in (data, *own, *weights)]
        steps = data.shape[1 if has_batch_first else 0]
        return _Layers.apply(steps, own[0].shape[-1] * (1 + is_two_way), *cast)  # type: ignore[no-untyped-call]

    return run


def install() -> None:
    """Put the functions in place of those of ``torch.nn.LSTM`` and ``torch.nn.GRU``."""
    variables: Any = torch._VF
    for name in ("lstm", "gru"):
        setattr(variables, name, _by_cudnn(getattr(variables, name)))
