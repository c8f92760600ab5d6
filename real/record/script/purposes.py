"""What each storage of the device is for."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from ringside.real.record.calls import record
from ringside.real.record.script import tensors
from ringside.real.record.script.steps import instances_of
from ringside.real.record.script.tape import TAPE


class Purposes:
    """The purpose of storages by their number; what has none is an activation."""

    def __init__(self) -> None:
        self._of: dict[int, str] = {}
        self._optimizers: list[Any] = []

    def install(self) -> None:
        """Look at gradients before an optimizer steps, when they are there."""
        register_optimizer_step_pre_hook(self._before)

    def _before(self, optimizer: Any, *_: Any) -> None:
        if not any(optimizer is one for one in self._optimizers):
            self._optimizers.append(optimizer)
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        self._tell("parameters", parameters)
        self._tell("gradients", [one.grad for one in parameters if one.grad is not None])

    def look(self) -> None:
        """Look at what optimizers and modules hold."""
        for optimizer in self._optimizers:
            self._tell("optimizer", tree_leaves([list(one.values()) for one in optimizer.state.values()]))
        for module in instances_of(torch.nn.Module):
            own = vars(module)
            self._tell("parameters", (own.get("_parameters") or {}).values())
            self._tell("buffers", (own.get("_buffers") or {}).values())

    def of(self, number: int) -> str:
        """Return what a storage is for."""
        if number in tensors.resized:
            return "gathered"
        known = self._of.get(number)
        if known is None and number in TAPE.reduced:
            return "gradients"
        if known is None:
            known = {"all_gather": "gathered", "reduce_scatter": "gradients"}.get(
                record.written.get(number, "")
            )
        return known or "activations"

    def _tell(self, purpose: str, some: Iterable[Any]) -> None:
        for one in some:
            if not isinstance(one, torch.Tensor):
                continue
            local = getattr(one, "_local_tensor", one)
            number = TAPE.number_of(local.untyped_storage()) if type(local).__name__ != "DTensor" else None
            if number is not None:
                self._of.setdefault(number, purpose)
