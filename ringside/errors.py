"""Whose mistake an error is, and what the command line makes of it.

Whoever writes something wrong is told so by a ``ValueError`` whose text is written for people: of a
class of ours, or raised by a ``raise`` statement in our code. One raised by a library that we call or
by the interpreter (``int("x")``, a tuple that does not unpack) was written for programmers: that it
got out is a defect of ours, as is every ``KeyError``, ``TypeError`` or failed assertion. So the rule
asks who raised, not what:

- exit 2, the user's to put right: a ``ValueError`` that we raised; a file or a device that refuses
  (``OSError``); an optional dependency that is not installed.
- exit 1, the run could not be finished: a ``RuntimeError`` that we raised; no memory left.
- exit 70, a defect: everything else, a broken law of physics (`ringside.sim.engine.laws.LawError`) included.

What a user's own model raises is turned into a ``ValueError`` where the model is called
(`ringside.real.model`).
"""

import opcode
import re
from collections.abc import Iterator

OPTIONAL = {
    **{"torch": "real", "pyroute2": "net"},
    **dict.fromkeys(("cryptography", "dask", "distributed", "pandas", "pyarrow"), "sweep"),
}
"""Modules that ``ringside`` alone does not bring, and the extra that does."""

USER, UNFINISHED, DEFECT = 2, 1, 70
"""Exit codes; the last is EX_SOFTWARE of sysexits.h."""


def exit_code(error: Exception) -> int:
    """The exit code that an error ends the command line with."""
    match error:
        case ModuleNotFoundError():
            return USER if _package(error) in OPTIONAL else DEFECT
        case OSError():
            return USER
        case MemoryError():
            return UNFINISHED
        case ValueError() if _is_deliberate(error):
            return USER
        case RuntimeError() if _is_deliberate(error):
            return UNFINISHED
    return DEFECT


def message(error: Exception) -> str:
    """What people are told."""
    match error:
        case ModuleNotFoundError() if exit_code(error) == USER:
            from ringside.topologies.extras import install  # help need not wait for what that brings

            package = _package(error)
            return f"{package} is not installed; {install(OPTIONAL[package])}"
        case MemoryError():
            return "this machine has not the memory; write a smaller size, fewer ranks or a smaller file"
    if exit_code(error) != DEFECT:
        return _FIELD.sub(_as_option, str(error)) or type(error).__name__
    return (
        f"this is a defect of Ringside, not of what you wrote: {type(error).__name__}: {error}\n"
        "please report it with the command line, the files that it read and what it prints "
        "with RINGSIDE_DEBUG=1 in its environment"
    )


_FIELD = re.compile(r"`([a-z][a-z_]*)`")
"""How messages write a question's field."""


def _as_option(field: re.Match[str]) -> str:
    return f"--{field[1].replace('_', '-')}"


def _package(error: ModuleNotFoundError) -> str:
    """The outermost package that is missing."""
    return str(error.name).partition(".")[0]


def _is_deliberate(error: Exception) -> bool:
    """Whether the error, or one that it was made from, is of a class of ours or was raised in a file of ours.

    SimPy raises anew what a process of ours raised, with the first one as its cause.
    """
    return any(_is_ours(type(one).__module__) or _raised_by_us(one) for one in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__


def _raised_by_us(error: BaseException) -> bool:
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next:
        trace = trace.tb_next
    frame = trace.tb_frame
    raised = opcode.opname[frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
    return raised and _is_ours(str(frame.f_globals.get("__name__")))


def _is_ours(module: str) -> bool:
    """Whether a module is one of ours."""
    return module.partition(".")[0] == "ringside"
