"""Replacement of ``torch.compile`` that returns its argument: compiled models are recorded eager."""

from typing import Any

import torch

from ringside.real.record.script.tape import TAPE

NOTE = "torch.compile is recorded as eager: its fusion of operators is not"


def install() -> None:
    """Put the functions in place."""
    vars(torch)["compile"] = _compile
    module: Any = torch.nn.Module
    module.compile = _compile_module


def _compile(model: Any = None, **_: Any) -> Any:
    TAPE.notes[NOTE] += 1
    return (lambda one: one) if model is None else model


def _compile_module(self: Any, *_: Any, **__: Any) -> None:
    TAPE.notes[NOTE] += 1
