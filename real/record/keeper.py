"""Keep a process and all that it starts: when it ends, or the keeper gets a signal, all of them end.

Linux makes orphans the keeper's children (``PR_SET_CHILD_SUBREAPER``), whatever session or environment they
are in, so that it can kill them.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ringside.real.launch.parent import die_with_parent

_PR_SET_CHILD_SUBREAPER = 36


def keep(run: Callable[[], None]) -> NoReturn:
    """Be the keeper of a process that is forked to ``run``: kill what it leaves, and exit with its code."""
    os.setsid()
    die_with_parent(signal.SIGTERM)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _told)
    with suppress(OSError):  # where memory runs out, the kernel is to take these first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    code = 1
    try:
        process = forked()
        if not process:
            _kept(run)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except SystemExit as end:
        code = int(str(end.code))
    finally:
        _kill_children()
        if code < 0:
            with suppress(OSError):  # SIGKILL has no other
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)


def forked() -> int:
    """Fork, and return the child's number, in the child 0: signals end it until it says otherwise."""
    signals = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    process = os.fork()
    if not process:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    return process


def _kept(run: Callable[[], None]) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        die_with_parent()
        run()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _told(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _kill_children() -> None:
    """Kill all children, and theirs, which become ours when their parents end."""
    while True:
        for one in _children():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    own = os.getpid()
    children = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after_name = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(after_name[1]) == own:
                children.append(int(file.parent.name))
    return children
