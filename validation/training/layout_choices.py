"""The layouts that a search considers: the choices of each option, given those before it."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import takewhile
from math import prod
from typing import Any

from ringside.sim.training.pipeline.layer_layout import stage_layers
from ringside.sim.training.pipeline.schedules import SCHEDULES
from ringside.sim.workload.decoder import CHECKPOINTING
from ringside.validation.questions.layout import ByLayout

SEARCHED_STRATEGIES = ("ddp", "fsdp", "hsdp")
"""Strategies of current torch; others are searched only if given."""

SEARCHED_SCHEDULES = ("1f1b", "interleaved1f1b", "zb-h1", "zbv")
"""Schedules without a uniformly better alternative, except for memory."""

MOST_VIRTUAL = 8
"""Stages per pipeline rank."""

MOST_SAMPLES = 8
"""Samples per micro-batch."""

MODEL = ("tp", "pp", "cp")
"""Options whose ranks share the same samples."""

Fixed = Mapping[str, Any]
"""Values of layout options that are fixed, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The common constraints of layouts: GPUs, GPUs per machine, samples per step, the model's layers."""

    ranks: int
    machine: int
    samples: int
    layers: int

    def batch(self, fixed: Fixed) -> int:
        """Return the samples per replica; 0 if they do not divide."""
        shared = prod(fixed.get(name, 1) for name in MODEL)
        replicas, rest = divmod(self.ranks, shared)
        return 0 if rest or self.samples % replicas else self.samples // replicas


def _strategies(budget: Budget, fixed: Fixed) -> Iterable[str]:
    return SEARCHED_STRATEGIES


def _tensor(budget: Budget, fixed: Fixed) -> Iterable[int]:
    """Yield divisors of one machine's ranks: across machines tensor parallelism is too slow."""
    return _divisors(budget.machine)


def _pipeline(budget: Budget, fixed: Fixed) -> Iterable[int]:
    return (count for count in _divisors(max(1, budget.ranks // fixed["tp"])) if count <= budget.layers)


def _schedules(budget: Budget, fixed: Fixed) -> Iterable[str | None]:
    return (None,) if fixed["pp"] == 1 else SEARCHED_SCHEDULES


def _virtual(budget: Budget, fixed: Fixed) -> Iterable[int | None]:
    own = SCHEDULES.get(fixed["schedule"])
    if own is None or own.stages_a_rank is not None:
        return (None,)
    return _doubled(2, min(MOST_VIRTUAL, budget.layers // fixed["pp"])) or (2,)


def _micro_batches(budget: Budget, fixed: Fixed) -> Iterable[int]:
    batch = budget.batch(fixed)
    return [count for count in _doubled(1, min(MOST_SAMPLES, batch)) if batch % count == 0] or (1,)


def _checkpointing(budget: Budget, fixed: Fixed) -> Iterable[str]:
    return CHECKPOINTING


def _sequence_parallel(budget: Budget, fixed: Fixed) -> Iterable[bool]:
    return (False, True) if fixed["tp"] > 1 else (False,)


CHOICES: dict[str, Callable[[Budget, Fixed], Iterable[Any]]] = {
    "tp": _tensor,
    "pp": _pipeline,
    "schedule": _schedules,
    "virtual": _virtual,
    "strategy": _strategies,
    "micro_batch": _micro_batches,
    "checkpointing": _checkpointing,
    "sequence_parallel": _sequence_parallel,
}
"""The choices of each option of `ByLayout`, given those before it."""


def layouts(budget: Budget, fixed: Fixed) -> Iterator[ByLayout]:
    """Yield all layouts with these options, in a fixed order."""
    return (ByLayout(**options) for options in _chosen(budget, fixed, {}, [*CHOICES]))


def check_fixed(fixed: Fixed) -> None:
    """Raise ValueError for options that no layout has."""
    needed: dict[str, Any] = {"tp": 2} if fixed.get("sequence_parallel") else {}
    if fixed.get("recompute"):
        needed["checkpointing"] = "selective"
    if {"schedule", "virtual", "microbatch_group"} & fixed.keys():
        needed["pp"] = 2
    if fixed.get("pp_layout"):
        needed["pp"] = len(stage_layers(fixed["pp_layout"]))
    ByLayout(**{**needed, **fixed}).layout()


def as_options(layout: ByLayout) -> str:
    """Return the options of ``ringside train`` for a layout."""
    options = []
    for one in fields(layout):
        value = getattr(layout, one.name)
        if value != one.default:
            option = f"--{one.name.replace('_', '-')}"
            if isinstance(value, bool):
                options.append(option if value else option.replace("--", "--no-", 1))
            else:
                options.append(f"{option} {shlex.quote(str(value))}")
    return " ".join(options)


def _chosen(
    budget: Budget, fixed: Fixed, chosen: dict[str, Any], left: list[str]
) -> Iterator[dict[str, Any]]:
    if not left:
        yield {**fixed, **chosen}
        return
    name, *later = left
    for value in (fixed[name],) if name in fixed else CHOICES[name](budget, chosen):
        yield from _chosen(budget, fixed, {**chosen, name: value}, later)


def _divisors(number: int) -> list[int]:
    return [count for count in range(1, number + 1) if number % count == 0]


def _doubled(first: int, most: int) -> list[int]:
    return list(takewhile(lambda count: count <= most, (first << power for power in range(64))))
