"""Processes that each record a rank: their environment, their output, and that none is left behind."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from ringside.real.launch.follow import LAST_LINES, how
from ringside.real.launch.torchrun import LOOPBACK
from ringside.real.record.part import Fork, RankOrder, RankPart

FORKS = "ringside.real.record.forks"
_ASKED = "ask-"
_PAUSE_S = 0.05

_LOG_BYTES = 2**24
"""Bytes of a rank's output after which it is begun again: a script may write without end."""

_GRACE_S = 10.0
"""Seconds in which keepers kill what they keep."""


class RecordingError(ValueError):
    """A script that cannot be recorded as it is; the message says why, in a line that names the rank."""


class UnfinishedError(RuntimeError):
    """A recording that could not finish: it took too long, or was killed."""


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
        self._running: set[int] = set()
        self._forks: subprocess.Popen[bytes] | None = None
        self._read = b""
        self.parts: dict[int, RankPart] = {}

    def __enter__(self) -> "RankProcesses":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._forks is None:
            return
        self._forks.terminate()
        try:
            self._forks.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._forks.kill()
            self._forks.wait()
        for pipe in (self._forks.stdin, self._forks.stdout):
            if pipe is not None:
                pipe.close()

    def record(self, ranks: Iterable[int], like: RankPart | None = None) -> None:
        """Record these ranks and those for which they wait.

        Ranks that should equal ``like`` take a step less: its entries are known to repeat.
        Raise RecordingError if one cannot be, UnfinishedError if there is no time left.
        """
        for rank in ranks:
            self._start(rank, like)
        while self._running:
            self._start_asked()
            for rank, code in self._ended():
                self._end(rank, code)
            for rank in self._running:
                if self._log(rank).stat().st_size > _LOG_BYTES:
                    os.truncate(self._log(rank), 0)
            if self._running and time.monotonic() > self._deadline:
                rank = min(self._running)
                raise UnfinishedError(
                    f"rank {rank} has not taken 3 optimizer steps in {self._seconds:.0f} s; give `timeout` "
                    f"more seconds, or the script less work before them\n{self._last_lines(rank)}".rstrip()
                )

    def _start_asked(self) -> None:
        for file in (self._folder / "mail").glob(f"{_ASKED}*"):
            self._start(int(file.name.removeprefix(_ASKED)))

    def _start(self, rank: int, like: RankPart | None = None) -> None:
        if rank in self._running or rank in self.parts:
            return
        order = self._order(rank)
        if like is not None:
            order = replace(order, like=(like.steps, like.period, like.posted))
        path = self._folder / f"order{rank}.json"
        order.write(path)
        self._log(rank).touch()
        self._running.add(rank)
        fork = Fork(rank, str(path), str(self._log(rank)))
        with suppress(BrokenPipeError):  # which `_ended` tells
            os.write(self._fork_of(order), bytes(fork))

    def _fork_of(self, order: RankOrder) -> int:
        """Return where to write which ranks to fork, by a process that has begun as a rank of this order."""
        if self._forks is None:
            with self._log_of_forks.open("wb") as log:
                self._forks = subprocess.Popen(
                    [sys.executable, "-P", "-m", FORKS],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                    env={**os.environ, **environment(order)},
                )  # fmt: skip
        assert self._forks.stdin is not None
        return self._forks.stdin.fileno()

    def _ended(self) -> list[tuple[int, int]]:
        """Return ranks that have ended, with their codes, after a wait for them."""
        assert self._forks is not None
        assert self._forks.stdout is not None
        if not select.select([self._forks.stdout], [], [], _PAUSE_S)[0]:
            return []
        more = os.read(self._forks.stdout.fileno(), 2**16)
        if not more:
            code = self._forks.wait()
            error = UnfinishedError if code < 0 else RecordingError
            raise error(
                f"the process that starts ranks {how(code)}\n{_last_lines(self._log_of_forks)}".rstrip()
            )
        *lines, self._read = (self._read + more).split(b"\n")
        return [(int(rank), int(code)) for rank, code in map(bytes.split, lines)]

    def _end(self, rank: int, code: int) -> None:
        self._running.remove(rank)
        result = Path(self._order(rank).result)
        if not result.exists():
            error = UnfinishedError if code < 0 else RecordingError
            raise error(
                f"rank {rank} {how(code)} before it had taken 3 optimizer steps\n"
                f"{self._last_lines(rank)}".rstrip()
            )
        part = RankPart.read(result)
        if part.error:
            raise RecordingError(f"rank {rank}: {part.error}")
        self.parts[rank] = part
        self._on_rank(rank)

    def _log(self, rank: int) -> Path:
        return self._folder / f"rank{rank}.log"

    @property
    def _log_of_forks(self) -> Path:
        return self._folder / "ranks.log"

    def _last_lines(self, rank: int) -> str:
        return _last_lines(self._log(rank), f"--- rank {rank} wrote:")


def _last_lines(log: Path, *title: str) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    return "\n".join([*title, *lines]) if lines else ""


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
