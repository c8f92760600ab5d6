"""The search space of layouts: the choices for each option of a layout.

An option in `CHOICES` is searched; one that the user gives is fixed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import takewhile
from math import prod
from typing import Any

from ringside.sim.training.pipeline.schedules import SCHEDULES
from ringside.sim.workload.decoder import CHECKPOINTING
from ringside.validation.questions.laid_out import LayoutWords

SEARCHED_STRATEGIES = ("ddp", "fsdp", "hsdp")
"""Those of current torch; others are searched only if given."""

SEARCHED_SCHEDULES = ("1f1b", "interleaved1f1b", "zb-h1", "zbv")
"""Schedules without a uniformly better alternative, except for memory."""

MOST_VIRTUAL = 8
"""Stages per pipeline rank."""

MOST_SAMPLES = 8
"""Samples per micro-batch."""

MODEL = ("tp", "pp", "cp")
"""Options whose ranks share the same samples."""

Said = Mapping[str, Any]
"""Options of a layout that are settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The common constraints of layouts: GPUs, GPUs per machine, samples per step, the model's layers."""

    ranks: int
    machine: int
    samples: int
    layers: int

    def batch(self, said: Said) -> int:
        """Return the samples per replica; 0 where they do not divide."""
        shared = prod(said.get(name, 1) for name in MODEL)
        replicas, rest = divmod(self.ranks, shared)
        return 0 if rest or self.samples % replicas else self.samples // replicas


def _strategies(budget: Budget, said: Said) -> Iterable[str]:
    return SEARCHED_STRATEGIES


def _tensor(budget: Budget, said: Said) -> Iterable[int]:
    """Yield divisors of one machine's ranks: tensor parallelism delays every layer."""
    return _divisors(budget.machine)


def _pipeline(budget: Budget, said: Said) -> Iterable[int]:
    return (count for count in _divisors(max(1, budget.ranks // said["tp"])) if count <= budget.layers)


def _schedules(budget: Budget, said: Said) -> Iterable[str | None]:
    return (None,) if said["pp"] == 1 else SEARCHED_SCHEDULES


def _virtual(budget: Budget, said: Said) -> Iterable[int | None]:
    own = SCHEDULES.get(said["schedule"])
    if own is None or own.stages_a_rank is not None:
        return (None,)
    return _doubled(2, min(MOST_VIRTUAL, budget.layers // said["pp"])) or (2,)


def _micro_batches(budget: Budget, said: Said) -> Iterable[int]:
    batch = budget.batch(said)
    return [count for count in _doubled(1, min(MOST_SAMPLES, batch)) if batch % count == 0] or (1,)


def _checkpointing(budget: Budget, said: Said) -> Iterable[str]:
    return CHECKPOINTING


def _sequence_parallel(budget: Budget, said: Said) -> Iterable[bool]:
    return (False, True) if said["tp"] > 1 else (False,)


CHOICES: dict[str, Callable[[Budget, Said], Iterable[Any]]] = {
    "tp": _tensor,
    "pp": _pipeline,
    "schedule": _schedules,
    "virtual": _virtual,
    "strategy": _strategies,
    "micro_batch": _micro_batches,
    "checkpointing": _checkpointing,
    "sequence_parallel": _sequence_parallel,
}
"""The choices of each option of `LayoutWords`, given those before it."""


def layouts(budget: Budget, said: Said) -> Iterator[LayoutWords]:
    """Yield all layouts with these options, in a fixed order."""
    return (LayoutWords(**words) for words in _chosen(budget, said, {}, [*CHOICES]))


def check_said(said: Said) -> None:
    """Raise ValueError for options that no layout has."""
    needed = {"tp": 2} if said.get("sequence_parallel") else {}
    if {"schedule", "virtual"} & said.keys():
        needed["pp"] = 2
    LayoutWords(**{**needed, **said}).layout()


def spelled(words: LayoutWords) -> str:
    """Return the options of ``ringside train`` for a layout."""
    usual = LayoutWords()
    options = []
    for one in fields(words):
        value = getattr(words, one.name)
        if value != getattr(usual, one.name):
            option = f"--{one.name.replace('_', '-')}"
            if isinstance(value, bool):
                options.append(option if value else option.replace("--", "--no-", 1))
            else:
                options.append(f"{option} {value}")
    return " ".join(options)


def _chosen(budget: Budget, said: Said, words: dict[str, Any], left: list[str]) -> Iterator[dict[str, Any]]:
    if not left:
        yield {**said, **words}
        return
    name, *later = left
    for value in (said[name],) if name in said else CHOICES[name](budget, words):
        yield from _chosen(budget, said, {**words, name: value}, later)


def _divisors(number: int) -> list[int]:
    return [count for count in range(1, number + 1) if number % count == 0]


def _doubled(first: int, most: int) -> list[int]:
    return list(takewhile(lambda count: count <= most, (first << power for power in range(64))))
