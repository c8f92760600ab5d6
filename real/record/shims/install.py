"""Put all shims in place, those of the user's too."""

from collections.abc import Collection, Iterable
from importlib import import_module

from ringside.real.record.script.refusal import Refusal
from ringside.real.record.shims import (
    apex,
    deepspeed,
    flash_attn,
    kernels,
    recurrent,
    transformer_engine,
    transformers,
    triton,
)
from ringside.real.record.shims.registry import SHIMS, register

_OWN = (apex, deepspeed, flash_attn, transformer_engine, transformers, triton)


def install(modules: Iterable[str], without: Collection[str] = ()) -> None:
    """Make the modules of all shims but those ``without``; ``modules`` register more, and replace ours."""
    kernels.install()
    recurrent.install()
    for one in _OWN:
        register(one.PACKAGE, one.make)
    for name in modules:
        try:
            import_module(name)
        except ImportError as error:
            raise Refusal(f"shims of {name}: {error}; write a module on PYTHONPATH") from None
    unknown = sorted(set(without) - SHIMS.keys())
    if unknown:
        raise Refusal(f"there is no shim of {unknown[0]}; do `without` {', '.join(sorted(SHIMS))}")
    for package, make in SHIMS.items():
        if package not in without:
            make()
