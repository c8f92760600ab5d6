"""The responsibility for an error, and its message and exit code on the command line.

A user's mistake is a ``ValueError`` whose text is written for people: of one of our classes, or raised by a
``raise`` statement in our code. One raised by a library that we call or by the interpreter (``int("x")``, a
tuple that does not unpack) was written for programmers: it is our defect, as is every ``KeyError``,
``TypeError`` or failed assertion. So the rule depends on the raising code, not on the type:

- exit 2, the user's to fix: a ``ValueError`` that we raised; a file or device error (``OSError``); a missing
  optional dependency.
- exit 1, the run could not finish: a ``RuntimeError`` that we raised; no memory left.
- exit 70, a defect: everything else, including a broken law of physics (`sim.libraries.laws.LawError`).

Errors of a user's own model become ``ValueError`` where the model is called (`ringside.real.model`).
"""

import opcode
import re
from collections.abc import Iterator

OPTIONAL = {
    **{"torch": "real", "pyroute2": "net"},
    **dict.fromkeys(("starlette", "uvicorn"), "serve"),
    **dict.fromkeys(("cryptography", "dask", "distributed", "pandas", "pyarrow"), "sweep"),
}
"""Modules of optional dependencies, and the extra that installs them."""

USER, UNFINISHED, DEFECT = 2, 1, 70
"""Exit codes; the last is EX_SOFTWARE of sysexits.h."""


def exit_code(error: Exception) -> int:
    """Return the exit code of an error."""
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
    """Return the error's message for people."""
    match error:
        case ModuleNotFoundError() if exit_code(error) == USER:
            from ringside.topologies.extras import install  # help need not wait for its imports

            package = _package(error)
            return f"{package} is not installed; {install(OPTIONAL[package])}"
        case MemoryError():
            return "this machine has too little memory; write a smaller size, fewer ranks or a smaller file"
    if exit_code(error) != DEFECT:
        return with_options(str(error)) or type(error).__name__
    return (
        f"this is a defect of Ringside, not of your input: {type(error).__name__}: {error}\nplease "
        "report it with the command line, the files that it read and what it prints with "
        "RINGSIDE_DEBUG=1 in its environment"
    )


_FIELD = re.compile(r"`([a-z][a-z_]*)`")
"""The notation of a question's field in messages."""


def with_options(text: str) -> str:
    """Return a message with fields as options of the command line."""
    return _FIELD.sub(_as_option, text)


def _as_option(field: re.Match[str]) -> str:
    return f"--{field[1].replace('_', '-')}"


def _package(error: ModuleNotFoundError) -> str:
    """Return the outermost package that is missing."""
    return str(error.name).partition(".")[0]


def _is_deliberate(error: Exception) -> bool:
    """Return whether the error, or a cause of it, is of our classes or was raised in our files.

    SimPy raises errors of our processes again, with the first one as the cause.
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
    """Return whether a module is one of ours."""
    return module.partition(".")[0] == "ringside"
