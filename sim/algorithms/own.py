"""An algorithm of a user's own: a Python file with a ``BUILDS`` table, as the modules here have."""

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ringside.sim.collective import KINDS, Collective
from ringside.sim.schedule import Schedule
from ringside.topologies.names import one_of

SUFFIX = ".py"


def builds_of(path: Path) -> Mapping[str, Any]:
    """Return the file's builders by collective; raise ValueError for a file without any.

    Errors of the file itself become ValueErrors: they are not Ringside's.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file; write an algorithm's name, or a file with a BUILDS table")
    try:
        builds = runpy.run_path(str(path)).get("BUILDS")
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
    if not isinstance(builds, Mapping) or not builds:
        raise ValueError(f"{path}: no BUILDS; write for example BUILDS = {{'all_reduce': all_reduce}}")
    for kind in builds:
        if kind not in KINDS:
            raise ValueError(f"{path}: BUILDS has {kind!r}; write {one_of(KINDS, str(kind))}")
    return {kind: _checked(path, build) for kind, build in builds.items()}


def _checked(path: Path, build: Any) -> Callable[[Collective], Schedule]:
    """Return a builder whose errors and wrong results are ValueErrors that name the file."""

    def checked(collective: Collective) -> Schedule:
        try:
            plan = build(collective)
        except (Exception, SystemExit) as error:
            raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
        if not isinstance(plan, Schedule):
            raise ValueError(f"{path}: {collective.kind} returns {type(plan).__name__}; return a Schedule")
        return plan

    return checked
