"""Kills ranks of a running job, each at a set time after its attempt began to train."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ringside.real.launch.follow import Row


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to a rank, ``after_s`` seconds after its attempt began to train."""

    after_s: float
    rank: int


class Killer:
    """Carries out kill number k on attempt number k; pass it every row, and stop it at the end.

    Processes are held by descriptors, so no other process that reuses a number can be hit.
    """

    def __init__(self, kills: Sequence[Kill]) -> None:
        self.killed: list[float] = []
        self._kills = kills
        self._told = threading.Condition()
        self._processes: dict[tuple[int, int], int] = {}
        self._training: dict[int, float] = {}
        self._over = False
        self._thread = threading.Thread(target=self._kill_all, daemon=True)

    def __enter__(self) -> "Killer":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        if self._thread.is_alive():
            self._thread.join()
        for descriptor in self._processes.values():
            os.close(descriptor)

    def tell(self, row: Row) -> None:
        """Note an event of a rank; start killing at the first event."""
        if self._thread.ident is None:  # not before torchrun is forked: a fork must not copy a second thread
            self._thread.start()
        if row["event"] == "done":
            self._end()
        with self._told:
            if row["event"] == "begun":
                self._processes[row["attempt"], row["rank"]] = os.pidfd_open(row["pid"])
            elif row["event"] == "loaded":
                self._training[row["attempt"]] = row["time"]
            self._told.notify()

    def _end(self) -> None:
        with self._told:
            self._over = True
            self._told.notify()

    def _may_go_on(self, attempt: int) -> bool:
        return self._over or attempt in self._training

    def _kill_all(self) -> None:
        for attempt, kill in enumerate(self._kills):
            with self._told:
                self._told.wait_for(partial(self._may_go_on, attempt))
                if self._over:
                    return
                moment = self._training[attempt] + kill.after_s
                if self._told.wait_for(lambda: self._over, max(0.0, moment - time.time())):
                    return
                with suppress(ProcessLookupError):  # it has just exited
                    signal.pidfd_send_signal(self._processes[attempt, kill.rank], signal.SIGKILL)
                    self.killed.append(time.time())
