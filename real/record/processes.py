"""Processes that each record a rank: their environment, their output, and that none is left behind."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ringside.real.launch.follow import LAST_LINES, die_with_parent, how
from ringside.real.launch.torchrun import LOOPBACK
from ringside.real.record.part import RankOrder, RankPart

WORKER = "ringside.real.record.script.worker"
_ASKED = "ask-"
_PAUSE_S = 0.05
_MARK = "RINGSIDE_RECORDING"
"""The variable by which descendants of a recording are known, whatever session they are in."""


class RecordingError(RuntimeError):
    """A script that could not be recorded; the message says why, in a line that names the rank."""


class RankProcesses:
    """The processes of ranks, from the first one's start to the end of the ``with`` block.

    ``order`` makes a rank's order, ``seconds`` is how long all may take.
    """

    def __init__(
        self, order: Callable[[int], RankOrder], folder: Path, seconds: float,
        on_rank: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._order = order
        self._folder = folder
        self._seconds = seconds
        self._on_rank = on_rank
        self._deadline = time.monotonic() + seconds
        self._token = uuid.uuid4().hex
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.parts: dict[int, RankPart] = {}

    def __enter__(self) -> "RankProcesses":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running.values():
            self._kill(process)
        self._kill_descendants()

    def record(self, ranks: Iterable[int]) -> None:
        """Record these ranks and those for which they wait; raise RecordingError if one cannot be."""
        for rank in ranks:
            self._start(rank)
        while self._running:
            self._start_asked()
            for rank, process in list(self._running.items()):
                if process.poll() is not None:
                    self._end(rank, process)
            if self._running and time.monotonic() > self._deadline:
                rank = min(self._running)
                raise RecordingError(
                    f"rank {rank} has not taken 3 optimizer steps in {self._seconds:.0f} s; give `timeout` "
                    f"more seconds, or the script less work before them\n{self._last_lines(rank)}".rstrip()
                )
            time.sleep(_PAUSE_S)

    def _start_asked(self) -> None:
        for file in (self._folder / "mail").glob(f"{_ASKED}*"):
            self._start(int(file.name.removeprefix(_ASKED)))

    def _start(self, rank: int) -> None:
        if rank in self._running or rank in self.parts:
            return
        order = self._order(rank)
        path = self._folder / f"order{rank}.json"
        order.write(path)
        with self._log(rank).open("wb") as log:
            self._running[rank] = subprocess.Popen(
                [sys.executable, "-P", "-m", WORKER, str(path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=die_with_parent, env={**os.environ, **environment(order), _MARK: self._token},
            )  # fmt: skip

    def _end(self, rank: int, process: "subprocess.Popen[bytes]") -> None:
        del self._running[rank]
        self._kill(process)
        result = Path(self._order(rank).result)
        if not result.exists():
            raise RecordingError(
                f"rank {rank} {how(process.returncode)} before it had taken 3 optimizer steps\n"
                f"{self._last_lines(rank)}".rstrip()
            )
        part = RankPart.read(result)
        if part.error:
            raise RecordingError(f"rank {rank}: {part.error}")
        self.parts[rank] = part
        self._on_rank(rank)

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill a process's session: the script's own processes are in it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _kill_descendants(self) -> None:
        """Kill processes that left their session; Linux shows the environment in which they started."""
        mark = f"{_MARK}={self._token}".encode()
        for file in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in file.read_bytes().split(b"\0"):
                    os.kill(int(file.parent.name), signal.SIGKILL)

    def _log(self, rank: int) -> Path:
        return self._folder / f"rank{rank}.log"

    def _last_lines(self, rank: int) -> str:
        lines = self._log(rank).read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join([f"--- rank {rank} wrote:", *lines]) if lines else ""


def environment(order: RankOrder) -> dict[str, str]:
    """Return the variables that torchrun sets for a rank, and those that keep packages off the network."""
    node, local = divmod(order.rank, order.per_node)
    return {
        "RANK": str(order.rank),
        "WORLD_SIZE": str(order.ranks),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(order.per_node),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(order.ranks // order.per_node),
        "ROLE_RANK": str(order.rank),
        "ROLE_WORLD_SIZE": str(order.ranks),
        "ROLE_NAME": "default",
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "OMP_NUM_THREADS": "1",
    }
