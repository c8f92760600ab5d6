"""Results as rows of plain values, which ``pandas.DataFrame(rows(...))`` accepts."""

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass

from ringside.sim.calibration import Fit
from ringside.sim.collective import Collective
from ringside.sim.goodput.study import Goodput
from ringside.sim.libraries.library import Prediction
from ringside.sim.libraries.nccl.stored import Stored
from ringside.sim.parameters import Parameters
from ringside.sim.pick import Pick
from ringside.sim.record import Record
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.step import StagedStep
from ringside.validation.compare import Compared
from ringside.validation.pairs import PairMatrix, SlowNode, SlowPair

Cell = str | int | float | bool | None

_SHAPELESS = {"timeline", "correlations", "correction", "anchor"}
"""Attributes that are not single values, though they are None or text."""

Result = (
    Prediction
    | Pick
    | TrainingStep
    | StagedStep
    | Record
    | Compared
    | Fit
    | Stored
    | SlowNode
    | SlowPair
    | PairMatrix
    | Goodput
)


def rows(results: Iterable[Result]) -> list[dict[str, Cell]]:
    """Return one row per result, with its attributes as columns, in their units.

    Those are seconds, bytes and bytes/s. A record inside a result adds its columns, and a collective
    ``collective``, ``ranks`` and ``nbytes``; the worst measurement of a node adds ``collective``,
    ``gpus_per_node`` and ``nbytes``. Other compound values (a timeline, a step's buckets) are left out.
    """
    return [dict(_columns(result)) for result in results]


def _columns(result: object) -> Iterator[tuple[str, Cell]]:
    if not is_dataclass(result):
        raise TypeError(
            f"{result!r} is not a result; pass what predict, pick, train, read or compare returned"
        )
    for name in (*(field.name for field in fields(result)), *_properties(type(result))):
        value = getattr(result, name)
        if name in _SHAPELESS:
            continue
        if isinstance(value, Collective):
            yield from (("collective", value.kind), ("ranks", value.ranks), ("nbytes", value.nbytes))
        elif isinstance(value, PairMatrix):
            yield from ((key, getattr(value, key)) for key in ("collective", "gpus_per_node", "nbytes"))
        elif value is None or isinstance(value, str | int | float):
            yield name, value
        elif _is_names(value):
            yield name, "/".join(value)
        elif isinstance(value, Record | Parameters):
            yield from _columns(value)


def _properties(kind: type) -> Iterator[str]:
    return (
        name
        for base in reversed(kind.__mro__)
        for name, member in vars(base).items()
        if isinstance(member, property) and not name.startswith("_")
    )


def _is_names(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(name, str) for name in value)
