"""All published tables of training, by name: whatever module beside this one has a ``TABLE``."""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ringside.validation import published
from ringside.validation.published.training.judging.judged import TrainingTable


@cache
def tables() -> dict[str, TrainingTable]:
    """Every table, by the order of names."""
    package = f"{published.__name__}.training"
    names = sorted(module.name for module in iter_modules(import_module(package).__path__))
    modules = (import_module(f"{package}.{name}") for name in names if not name.startswith("_"))
    found = (getattr(module, "TABLE", None) for module in modules)
    return {table.name: table for table in found if isinstance(table, TrainingTable)}


def find_tables(names: Iterable[str]) -> list[TrainingTable]:
    """Return the tables of these names, or all if there are none.

    Raises ValueError for a name that none has.
    """
    known, asked = tables(), list(names)
    for name in asked:
        if name not in known:
            raise ValueError(f"unknown table {name!r}; write one of {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(asked)] or list(known.values())
