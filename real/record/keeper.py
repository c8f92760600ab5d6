"""Keep a process and all that it starts: when it ends, or the keeper is told to, nothing of them is left.

``python -m ringside.real.record.keeper COMMAND...`` ends as the command does. Linux makes orphans the
keeper's children (``PR_SET_CHILD_SUBREAPER``), whatever session or environment they are in, so that it can
kill them.
"""

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ringside.real.launch.parent import die_with_parent

_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run the command, kill the processes that it leaves, and exit with its code."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _told)
    with suppress(OSError):  # where memory runs out, the kernel is to take these first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    try:
        process = subprocess.Popen(sys.argv[1:], start_new_session=True, preexec_fn=die_with_parent)
        code = process.wait()
    finally:
        _kill_children()
    if code < 0:
        with suppress(OSError):  # SIGKILL has no other
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


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


if __name__ == "__main__":
    main()
