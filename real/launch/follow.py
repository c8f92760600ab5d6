"""What every launcher needs: to follow the rows of a run, to tell a failure, to leave nothing behind."""

import ctypes
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

Row = dict[str, Any]

LAST_LINES = 12
"""How much of a rank's output a failure shows."""

START_S = 60.0
"""What processes may need to import torch and find each other, on top of a job's own timeout."""


class RankJob(Protocol):
    """What ranks are told to do: a file that the module ``worker`` carries out on each of them.

    That module has ``carry_out(job_file, rows_file)``, and does so when it is run with these arguments.
    """

    @property
    def worker(self) -> str:
        """The module's name."""
        ...

    @property
    def timeout_s(self) -> float:
        """How long a rank waits for another before it gives up."""
        ...

    def write(self, path: Path) -> None:
        """Write the job down."""
        ...


class MeasureError(RuntimeError):
    """A run that did not end well; the message says which rank did what, with its own output."""


def check_torch() -> None:
    """Refuse where torch is missing, before processes are started that could only say so in a traceback."""
    if find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, however that comes about (Linux).

    By ctypes: torch's own call is private and would need torch in the process that starts torchrun.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def follow(
    rows_file: Path, patience_s: float, on_row: Callable[[Row], None], ended: Callable[[], bool]
) -> str | None:
    """Hand rows on until the run has ended or nothing moves any more; what is wrong in the latter case.

    An empty line is no row, but a sign of life.
    """
    deadline = time.monotonic() + patience_s
    with rows_file.open(encoding="utf-8") as rows:
        line = ""
        while True:
            over = ended()
            while more := rows.readline():
                line += more
                if line.endswith("\n"):
                    if line.strip():
                        on_row(json.loads(line))
                    line = ""
                    deadline = time.monotonic() + patience_s
            if over:
                return None
            if time.monotonic() > deadline:
                return f"the run hangs: no rank has got any further for {patience_s:.0f} s"


def show_life(rows_file: Path) -> None:
    """Tell `follow` that the run goes on."""
    with rows_file.open("a", encoding="utf-8") as rows:
        rows.write("\n")


def how(code: int) -> str:
    """How a process ended, from its exit code, negative where a signal killed it."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"


def last_lines(log: Path, title: str) -> Iterator[str]:
    """The title and the last lines of a log, if it has any."""
    if not log.exists():
        return
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    yield from [f"--- {title} wrote:", *lines] if lines else []
