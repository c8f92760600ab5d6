"""Start ranks, here or in an emulated network, by forking them from one process that has torch loaded.

Every rank of torchrun imports torch: two seconds of a core and 200 MB each. Forked ranks start within
milliseconds and share its memory. Own code, because multiprocessing's forkserver is one for the whole
program, with the environment and the scheduler of its first use, does not report how it ended, and has its
processes wait for their threads.
"""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from ringside.real.launch.follow import (
    START_S,
    MeasureError,
    RankJob,
    Row,
    check_torch,
    follow,
    how,
    last_lines,
)
from ringside.real.launch.parent import die_with_parent

if TYPE_CHECKING:
    from ringside.real.emulate import Host

_FIRST_PORT, _PORTS = 29500, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One job in a folder: its worker, each rank's namespace, and the rendezvous.

    A rank without a namespace stays in the caller's.
    """

    folder: str
    worker: str
    homes: tuple[str, ...]
    interface: str
    address: str
    port: int


class Forks:
    """The process from which ranks are forked, from its first job to the end of the ``with`` block."""

    def __init__(self) -> None:
        check_torch()
        self._folder = tempfile.TemporaryDirectory(prefix="ringside-")
        self._zygote: subprocess.Popen[str] | None = None
        self._orders = 0

    def __enter__(self) -> "Forks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._folder.cleanup()

    def run(self, job: RankJob, hosts: "Sequence[Host]", on_row: Callable[[Row], None]) -> None:
        """Carry out the job with rank r in ``hosts[r]``; call ``on_row`` with each size's row.

        Raise `MeasureError` where a rank dies, hangs or gets a wrong sum, after all have been killed.
        """
        homes = [host.namespace for host in hosts]
        port = _FIRST_PORT + self._orders % _PORTS
        self._run(job, homes, (hosts[0].interface, hosts[0].address, port), on_row)

    def run_here(self, job: RankJob, ranks: int, on_row: Callable[[Row], None]) -> None:
        """Carry out the job with all ranks on this machine itself, as `run` does."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        interface = os.environ.get("GLOO_SOCKET_IFNAME") or "lo"
        self._run(job, [""] * ranks, (interface, "127.0.0.1", port), on_row)

    def _run(
        self,
        job: RankJob,
        homes: Sequence[str],
        meeting: tuple[str, str, int],
        on_row: Callable[[Row], None],
    ) -> None:
        order = self._order(job, homes, meeting)
        folder = Path(order.folder)
        try:
            complaint = self._carry_out(order, job, on_row)
        except BaseException:
            self._stop()
            raise
        if complaint:
            self._stop()
            logs = [last_lines(folder / str(rank), f"rank {rank}") for rank in range(len(homes))]
            own = last_lines(Path(self._folder.name, "log"), "the process that forks the ranks")
            raise MeasureError("\n".join([complaint, *(line for log in (*logs, own) for line in log)]))

    def _order(self, job: RankJob, homes: Sequence[str], meeting: tuple[str, str, int]) -> Order:
        self._orders += 1
        interface, address, port = meeting
        folder = Path(self._folder.name, str(self._orders))
        folder.mkdir()
        job.write(folder / "job.json")
        (folder / "rows.jsonl").touch()
        return Order(
            folder=str(folder),
            worker=job.worker,
            homes=tuple(homes),
            interface=interface,
            address=address,
            port=port,
        )

    def _carry_out(self, order: Order, job: RankJob, on_row: Callable[[Row], None]) -> str | None:
        """Carry out the order; return an error, or None."""
        zygote = self._zygote or self._start()
        assert zygote.stdin
        assert zygote.stdout
        answers = zygote.stdout

        def answered() -> bool:
            return bool(select.select([answers], [], [], 0.05)[0])

        with suppress(BrokenPipeError):  # the process has died and will not reply
            zygote.stdin.write(json.dumps(asdict(order)) + "\n")
            zygote.stdin.flush()
        hangs = follow(Path(order.folder, "rows.jsonl"), START_S + job.timeout_s, on_row, answered)
        if hangs:
            return hangs
        answer = answers.readline()
        if not answer:
            return f"the run failed: the process that forks the ranks {how(zygote.wait())}"
        failure: dict[str, int] | None = json.loads(answer)
        return f"the run failed: rank {failure['rank']} {how(failure['code'])}" if failure else None

    def _start(self) -> "subprocess.Popen[str]":
        with Path(self._folder.name, "log").open("w") as log:
            self._zygote = subprocess.Popen(
                [sys.executable, "-P", "-m", "ringside.real.launch.zygote"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        return self._zygote

    def _stop(self) -> None:
        """Kill the process; its ranks die with it."""
        if self._zygote:
            self._zygote.kill()
            self._zygote.communicate()
            self._zygote = None
