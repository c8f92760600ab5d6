"""DistributedDataParallel: its C++ reducer runs unchanged; a few of its checks read memory."""

from contextlib import suppress
from typing import Any

import torch
from torch.nn.parallel import distributed as ddp

from ringside.real.record.calls.record import end_of_backward
from ringside.real.record.script.patches import Function, around_backward
from ringside.real.record.script.refusal import refusal

_TIMED = 10
"""Forwards that DDP's reducer times, and each hundredth after them, ``reducer.hpp``."""


class _Logger:
    """DDP's logger without its statistics, which ask timers of CUDA."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def set_runtime_stats_and_log(self) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


def _forward_alone(self: Any, *inputs: Any, **kwargs: Any) -> Any:
    """Do ``DataParallel.forward`` with one device."""
    if len(self.device_ids) > 1:
        raise refusal(
            "torch.nn.DataParallel uses several GPUs from one process",
            "use DistributedDataParallel, or record one GPU",
        )
    return self.module(*inputs, **kwargs)


def install() -> None:
    """Replace what reads memory of the device, and see where backward ends."""
    vars(ddp)["_verify_param_shape_across_processes"] = lambda *_, **__: True
    alone: Any = torch.nn.DataParallel
    alone.forward = _forward_alone
    wrapper: Any = ddp.DistributedDataParallel
    make = wrapper.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.logger = _Logger(self.logger)
        if torch._C._has_cuda:
            _past_timers(self.reducer)

    wrapper.__init__ = made
    if torch._C._has_cuda:
        wrapper._set_static_graph = _refuse_static_graph
    around_backward(_ended)


def _past_timers(reducer: Any) -> None:
    """Count forwards until the reducer times none: a build for CUDA asks the driver for the time."""
    for _ in range(_TIMED + 1):
        with suppress(RuntimeError):  # which it does when it has counted
            reducer.prepare_for_forward()
    reducer._set_ddp_runtime_logging_sample_rate(2**31 - 1)


def _refuse_static_graph(self: Any) -> None:
    raise refusal(
        "DistributedDataParallel with static_graph asks a build of PyTorch for CUDA for its driver",
        "record with a build for CPU, or without static_graph",
    )


def _ended(run: Function) -> Function:
    def backward(*args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        end_of_backward()
        return result

    return backward
