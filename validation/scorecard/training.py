"""The published tables of training: every ``TABLE`` of a module in `validation/published/training`."""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ringside.validation import published
from ringside.validation.scorecard.judged import JudgedTable


@cache
def _tables() -> dict[str, JudgedTable]:
    package = f"{published.__name__}.training"
    names = sorted(module.name for module in iter_modules(import_module(package).__path__))
    modules = (import_module(f"{package}.{name}") for name in names if not name.startswith("_"))
    tables = (getattr(module, "TABLE", None) for module in modules)
    return {table.name: table for table in tables if isinstance(table, JudgedTable)}


def training_tables(names: Iterable[str] = (), *, absolute: bool = False) -> list[JudgedTable]:
    """Return the tables of these names, or all; raise ValueError for an unknown name.

    They are those that judge rows from one of a series, or with ``absolute`` with nothing known.
    """
    names = list(dict.fromkeys(names))
    known = {
        name: table
        for name, table in _tables().items()
        if (table.absolute if absolute else table.judged) is not tuple
    }
    for name in names:
        if name not in known:
            raise ValueError(f"unknown table {name!r}; write one of {', '.join(known)}")
    return [known[name] for name in names] or list(known.values())
