"""Options of ``train`` and ``measure ddp`` for DistributedDataParallel's buckets and communication hook."""

from collections.abc import Callable
from typing import Any

from ringside.sim.training.ddp.job import COMM_HOOKS
from ringside.sim.training.ddp.powersgd import PowerSGD
from ringside.topologies.words import one_of


def caps_of(text: str | None) -> tuple[float, ...]:
    """Parse MiB of ``1,5,25``."""
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{text!r} are not bucket caps; write MiB separated by commas, for example 1,5,25"
        ) from None


def hook_of(text: str | None) -> tuple[str | None, PowerSGD]:
    """Parse a communication hook's name, and PowerSGD's arguments in ``powersgd:rank=4,start=10``."""
    if text is None:
        return None, PowerSGD()
    name, colon, figures = text.partition(":")
    if name not in COMM_HOOKS:
        raise ValueError(f"unknown hook {name!r}; write {one_of(COMM_HOOKS, name)}")
    if colon and name != "powersgd":
        raise ValueError(f"{text!r}: {name} has no arguments; write {name}")
    return name, PowerSGD(**dict(_figure(part) for part in figures.split(",")) if colon else {})


def _figure(text: str) -> tuple[str, Any]:
    word, _, value = text.partition("=")
    name = word.replace("-", "_")
    try:
        return name, _FIGURES[name](value)
    except (KeyError, ValueError):
        allowed = ", ".join(known.replace("_", "-") for known in _FIGURES)
        raise ValueError(
            f"{text!r} is not an argument of PowerSGD; write {allowed}, for example rank=4 or warm-start=no"
        ) from None


def _yes(text: str) -> bool:
    return {"yes": True, "no": False}[text]


_FIGURES: dict[str, Callable[[str], Any]] = {
    "rank": int, "start": int, "min_rate": float, "error_feedback": _yes, "warm_start": _yes, "batched": _yes,
}  # fmt: skip
