"""DistributedDataParallel: its C++ reducer calls collectives as it is; a few checks of it read memory."""

from typing import Any

from torch.nn.parallel import distributed as ddp

from ringside.real.record.calls.record import end_of_backward
from ringside.real.record.script.refusal import refusal
from ringside.real.record.script.patches import Function, around_backward


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

    wrapper.__init__ = made
    around_backward(_ended)


def _ended(run: Function) -> Function:
    def backward(*args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        end_of_backward()
        return result

    return backward
