"""The compiled kernels of ``deepspeed``, which it builds with CUDA's compiler: its optimizers.

Those on the host take no time, as whatever a host computes.
"""

from types import SimpleNamespace
from typing import Any

from ringside.real.record.script.tape import TAPE
from ringside.real.record.shims.fused import post
from ringside.real.record.shims.registry import after_import

PACKAGE = "deepspeed"

_ON_HOST = "an optimizer of DeepSpeed's on the host takes no time; it takes long where it is used"


def _over_lists(name: str) -> Any:
    """Return a kernel over lists of tensors, gradients first, which changes all others."""

    def kernel(chunk: int, flag: Any, lists: Any, *_: Any) -> None:
        gradients, *changed = lists
        written = [one for some in changed for one in some]
        post(f"deepspeed.{name}", [*gradients, *written], written)

    return kernel


def _lamb(parameter: Any, copy: Any, mean: Any, square: Any, gradient: Any, *_: Any) -> Any:
    written = [parameter, mean, square]
    post("deepspeed.lamb", [*written, gradient], written)
    return parameter.new_empty(1)


class _OnHost:
    """A compiled optimizer of the host: all its functions do nothing."""

    def __getattr__(self, name: str) -> Any:
        TAPE.notes[_ON_HOST] += 1
        return lambda *_: None


def _load(builders: Any) -> None:
    builders.OpBuilder._loaded_ops.update(
        fused_adam=SimpleNamespace(multi_tensor_adam=_over_lists("adam")),
        fused_lion=SimpleNamespace(multi_tensor_lion=_over_lists("lion")),
        fused_lamb=SimpleNamespace(lamb=_lamb),
        **dict.fromkeys(("cpu_adam", "cpu_adagrad", "cpu_lion"), _OnHost()),
    )


def make() -> None:
    """Have the package find its kernels built, where it is installed."""
    after_import("deepspeed.ops.op_builder.builder", _load)
