"""Shared by all launchers: follow the rows of a run, describe a failure, leave no process behind."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter

Row = dict[str, Any]

LAST_LINES = 12
"""Lines of a rank's output in an error message."""

START_S = 60.0
"""Seconds allowed for processes to import torch and find each other, on top of a job's own timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankJob:
    """The job of every rank, which the launcher hands to each as a JSON file.

    The module ``worker`` has ``carry_out(job_file, rows_file)``. A rank waits ``timeout_s`` for another
    before it gives up.
    """

    worker: ClassVar[str]

    timeout_s: float = 60.0

    def write(self, path: Path) -> None:
        """Write the job for `read`."""
        path.write_bytes(TypeAdapter(type(self)).dump_json(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a job from the file."""
        return TypeAdapter(cls).validate_json(path.read_bytes())


class MeasureError(RuntimeError):
    """A failed run; the message says which rank did what, with its output."""


def check_torch() -> None:
    """Raise ModuleNotFoundError without torch, before ranks start and fail with a traceback."""
    if find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")


def follow(
    rows_file: Path, patience_s: float, on_row: Callable[[Row], None], ended: Callable[[], bool]
) -> str | None:
    """Pass on rows until the run ends or stalls; return the error if it stalls.

    An empty line is a sign of life, not a row.
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
                return f"the run hangs: no rank has made progress for {patience_s:.0f} s"


def show_life(rows_file: Path) -> None:
    """Signal to `follow` that the run makes progress."""
    with rows_file.open("a", encoding="utf-8") as rows:
        rows.write("\n")


def how(code: int) -> str:
    """Describe how a process ended, from its exit code; a negative one is a signal."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


def last_lines(log: Path, title: str) -> Iterator[str]:
    """Yield the title and the last lines of a log; nothing for an empty one."""
    if not log.exists():
        return
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    yield from [f"--- {title} wrote:", *lines] if lines else []
