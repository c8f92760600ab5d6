"""A job in a file: a Python script with a function ``main(dist)``."""

import linecache
import runpy
import traceback
from pathlib import Path
from typing import Any

from sim.program.distributed import Main, record
from sim.program.operations import Operation, Program
from topologies.disk import regular
from topologies.units import parse_size

WORDS = {unit: parse_size(f"1 {unit}") for unit in ("KiB", "MiB", "GiB")}
"""Sizes that a script may use without importing them."""


class ScriptError(ValueError):
    """What is wrong with a script, and where."""


def load(path: Path) -> Main:
    """The function ``main`` of the script.

    Raise `ScriptError` where there is none, or where the script cannot be run.
    """
    regular(path)
    try:
        found = runpy.run_path(str(path), init_globals=dict(WORDS)).get("main")
    except (Exception, SystemExit) as error:
        raise ScriptError(f"{_place(path, error)}: {_said(error)}") from error
    if not callable(found):
        raise ScriptError(f"{path} has no function main; write def main(dist): ...")
    main: Main = found
    return main


def program_of(path: Path, ranks: int, library: str, *, eager: bool = False) -> Program:
    """The job of a script on so many ranks. A rank's operations raise `ScriptError` where its main fails."""
    recorded = record(load(path), ranks, library, eager=eager, name=path.name)

    def operations(rank: int) -> Any:
        made: Any
        try:
            made = recorded.operations(rank)
        except (Exception, SystemExit) as error:
            text = str(error)
            told = text if text.startswith(str(path)) else f"{_place(path, error)}: {_said(error)}"
            raise ScriptError(f"{told} (rank {rank})") from error
        return made

    return Program(path.name, ranks, operations)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _place(path: Path, error: BaseException) -> str:
    """``FILE:LINE`` of the script's own line that the error came through last."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{path}:{error.lineno}"
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    linecache.checkcache(str(path))
    return f"{path}:{lines[-1]}" if lines and lines[-1] else str(path)


__all__ = ["Operation", "ScriptError", "load", "program_of"]
