"""``triton``, where it is not installed: kernels can be defined; a launch is one operator."""

from typing import Any

from ringside.real.record.shims.fused import post
from ringside.real.record.shims.registry import is_installed, module

PACKAGE = "triton"


class TritonKernel:
    """A kernel of the user's."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "kernel")

    def __getitem__(self, grid: Any) -> Any:
        """Return what launches the kernel."""
        return lambda *args, **_: post(f"triton.{self.__name__}", args, ())


def _decorate(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and callable(args[0]) and not kwargs:
        return TritonKernel(args[0])
    return lambda one: one if isinstance(one, TritonKernel) else TritonKernel(one)


def _unchanged(*_: Any, **__: Any) -> Any:
    return lambda one: one


def make() -> None:
    """Make the modules, unless the real ones are here."""
    if is_installed(PACKAGE):
        return
    module(
        "triton", jit=_decorate, autotune=_unchanged, heuristics=_unchanged, Config=_unchanged,
        cdiv=lambda one, other: -(-one // other), next_power_of_2=lambda one: 1 << (one - 1).bit_length(),
    )  # fmt: skip
    module("triton.language", constexpr=int)
