"""A job in a file: a Python script with a function ``main(dist)``."""

import linecache
import runpy
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from types import ModuleType

from ringside.sim.libraries.rules import RULES
from ringside.sim.program.operations import Operation, Program
from ringside.sim.program.record.distributed import Distributed, Main, record
from ringside.topologies.disk import regular
from ringside.topologies.units import parse_size

WORDS = {unit: parse_size(f"1 {unit}") for unit in ("KiB", "MiB", "GiB")}
"""Sizes that a script may use without importing them."""


class ScriptError(ValueError):
    """An error in a script, with its location."""


def program_of(path: Path, ranks: int, library: str, *, eager: bool = False) -> Program:
    """Return the job of a script on ``ranks`` ranks; it runs once per rank, so ranks share no globals.

    A rank's operations raise `ScriptError` where its script cannot be run.
    """
    if eager and not (library in RULES and RULES[library].on_stream):
        raise ScriptError(f"eager is NCCL's, and {library} makes its groups at once; leave it out")
    if path.is_dir():
        raise ScriptError(f"{path} is a folder; write a file with def main(dist): ...")
    if not path.exists():
        raise ScriptError(f"{path}: no such file; write the name of one with def main(dist): ...")
    regular(path)

    def main(dist: Distributed) -> None:
        with a_process(path):
            main_of(path)(dist)

    recorded = record(main, ranks, library, eager=eager, name=path.name)

    @cache
    def operations(rank: int) -> Sequence[Operation]:
        try:
            return recorded.operations(rank)
        except (Exception, SystemExit) as error:
            text = str(error)
            message = text if text.startswith(str(path)) else f"{_place(path, error)}: {_message(error)}"
            raise ScriptError(f"{message} (rank {rank})") from error

    return Program(path.name, ranks, operations)


def main_of(path: Path) -> Main:
    """Return the function ``main`` that the script defines."""
    value = runpy.run_path(str(path), init_globals=dict(WORDS)).get("main")
    if not callable(value):
        raise ScriptError(f"{path} has no function main; write def main(dist): ...")
    main: Main = value
    return main


@contextmanager
def a_process(path: Path) -> Iterator[None]:
    """Give a script the state of its own process: no arguments, the files beside it, its output.

    Output goes to standard error, since the answer is on standard output. Modules from beside the script are
    unloaded afterwards, with the state that the rank left in them.
    """
    folder = path.resolve().parent
    known, arguments = set(sys.modules), sys.argv
    sys.argv = [str(path)]
    try:
        with imports_from(folder), redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv = arguments
        for name in modules_beside(folder, known):
            del sys.modules[name]


@contextmanager
def imports_from(folder: Path) -> Iterator[None]:
    """Import modules from the folder first, without writing their bytecode.

    Python reuses bytecode of a source with equal size and second of change, even if it was edited.
    """
    places, wrote_none = sys.path, sys.dont_write_bytecode
    sys.path, sys.dont_write_bytecode = [str(folder), *places], True
    try:
        yield
    finally:
        sys.path, sys.dont_write_bytecode = places, wrote_none


def modules_beside(folder: Path, known: Collection[str]) -> list[str]:
    """Return the imported modules that lie in the folder, or in packages that do, except ``known``."""
    new = [name for name in sys.modules if name not in known]
    beside = {name for name in new if "." not in name and _lies_in(folder, sys.modules[name])}
    return [name for name in new if name.partition(".")[0] in beside]


def _lies_in(folder: Path, module: ModuleType) -> bool:
    """Check whether a module is a file of the folder, or a package in it."""
    file = Path(getattr(module, "__file__", None) or "/")
    return (file.parent.parent if file.name == "__init__.py" else file.parent) == folder


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _place(path: Path, error: BaseException) -> str:
    """Return ``FILE:LINE`` of the innermost line of the script in the error's traceback."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{path}:{error.lineno}"
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    linecache.checkcache(str(path))
    return f"{path}:{lines[-1]}" if lines and lines[-1] else str(path)
