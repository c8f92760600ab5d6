"""``transformer_engine.pytorch``, where it is not installed: its layers by PyTorch's own."""

import contextlib
from typing import Any

import torch

from ringside.real.record.shims.registry import is_installed, module

PACKAGE = "transformer_engine"


class EngineLinear(torch.nn.Linear):
    """``transformer_engine.pytorch.Linear``."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, **more: Any) -> None:
        own = {"device": more.get("device"), "dtype": more.get("params_dtype")}
        super().__init__(in_features, out_features, bias, **own)


def make() -> None:
    """Make the modules, unless the real ones are here."""
    if is_installed(PACKAGE):
        return
    names = {
        "Linear": EngineLinear,
        "LayerNorm": torch.nn.LayerNorm,
        "RMSNorm": torch.nn.RMSNorm,
        "fp8_autocast": lambda *_, **__: contextlib.nullcontext(),
    }
    module("transformer_engine.pytorch", **names)
