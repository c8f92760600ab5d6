"""Put all shims in place, those of the user's too."""

from collections.abc import Iterable
from importlib import import_module

from ringside.real.record.script.refusal import Refusal
from ringside.real.record.shims import apex, flash_attn, kernels, transformer_engine, triton
from ringside.real.record.shims.registry import SHIMS, register

_OWN = (apex, flash_attn, transformer_engine, triton)


def install(modules: Iterable[str]) -> None:
    """Make the modules of all shims; ``modules`` register more of them, and replace ours."""
    kernels.install()
    for one in _OWN:
        register(one.PACKAGE, one.make)
    for name in modules:
        try:
            import_module(name)
        except ImportError as error:
            raise Refusal(f"shims of {name}: {error}; write a module on PYTHONPATH") from None
    for make in SHIMS.values():
        make()
