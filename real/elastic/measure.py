"""Run an elastic job under torchrun, kill its ranks at set moments, and time every stage."""

import os
import random
import re
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise

from ringside.real.elastic.job import ElasticJob
from ringside.real.launch.follow import MeasureError, Row
from ringside.real.launch.torchrun import local_agent, run_agents
from ringside.real.machine import begun_first, machine_fingerprint
from ringside.sim.goodput.elastic import ElasticRun, Restarted


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to a rank, ``after_s`` seconds after its attempt began to train."""

    after_s: float
    rank: int


class Killer:
    """Carries out kill number k on attempt number k; pass it every row, and stop it at the end.

    Processes are addressed by descriptors, so a process that reuses a process id is never killed.
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
        """Record an event of a rank; start killing at the first event."""
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


_STAMP = re.compile(r"^[IWE](\d{4} \d\d:\d\d:\d\d\.\d+) ")
_MEETING, _MET = "Rendezvous'ing worker group", "Rendezvous complete"
_NOTICED = ("closing signal", "failed (exitcode")

_ENVIRONMENT = {
    "LOGLEVEL": "INFO",
    "OMP_NUM_THREADS": "1",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}
"""The agent logs each stage; a store per attempt avoids addresses of killed processes."""


def seeded_kills(count: int, work_s: float, ranks: int, seed: int) -> list[Kill]:
    """Return kills of random ranks, evenly spaced over the work, each shifted by up to half the spacing."""
    draw = random.Random(seed)
    apart = work_s / (count + 1)
    return [Kill(apart * draw.uniform(0.5, 1.5), draw.randrange(ranks)) for _ in range(count)]


def measure_elastic(job: ElasticJob, ranks: int, kills: Sequence[Kill]) -> ElasticRun:
    """Run the job until its steps are done, restarting after each kill.

    Raise `MeasureError` where a rank dies that was not killed, hangs, or gets a wrong sum.
    """
    rows: list[Row] = []
    logs: list[str] = []
    agent = local_agent(
        ranks, "--max-restarts", str(len(kills)), place=begun_first(), environment=_ENVIRONMENT
    )
    with Killer(kills) as killer:

        def keep(row: Row) -> None:
            rows.append(row)
            killer.tell(row)

        run_agents(job, [agent], keep, logs.append)
    return _as_run(job, ranks, kills, killer.killed, rows, _rounds(logs[0]))


@dataclass
class _Round:
    """One rendezvous of torchrun's agent: when a failure was detected, when it began and when it ended."""

    noticed: float | None
    meeting: float
    met: float = 0.0


def _rounds(log: str) -> list[_Round]:
    """Parse the events of torchrun's agent, with times on the machine's clock."""
    rounds: list[_Round] = []
    noticed: float | None = None
    for line in log.splitlines():
        stamp = _STAMP.match(line)
        if not stamp:
            continue
        moment = datetime.strptime(
            f"{time.localtime().tm_year} {stamp[1]}", "%Y %m%d %H:%M:%S.%f"
        ).timestamp()
        if noticed is None and any(message in line for message in _NOTICED):
            noticed = moment
        elif _MEETING in line:
            rounds.append(_Round(noticed, moment))
            noticed = None
        elif _MET in line and rounds:
            rounds[-1].met = moment
    return rounds


def _as_run(
    job: ElasticJob,
    ranks: int,
    kills: Sequence[Kill],
    killed: Sequence[float],
    rows: Sequence[Row],
    rounds: Sequence[_Round],
) -> ElasticRun:
    """Return the run that the rows and the log describe, in seconds of each stage."""
    own = [row for row in rows if row["rank"] == 0]
    begin = min(row["time"] for row in rows)
    took: dict[str, list[float]] = {"step": [], "saved": []}
    kept: dict[int, float] = {}
    for before, row in pairwise(own):
        if row["event"] in took and row["attempt"] == before["attempt"]:
            took[row["event"]].append(row["time"] - before["time"])
            if row["event"] == "step":
                kept[row["step"]] = row["time"] - before["time"]
    if not rounds:
        raise MeasureError("this torchrun's log shows no rendezvous; that of torch 2.13 does")
    if len(rounds) != len(killed) + 1:
        raise MeasureError(
            f"{len(killed)} kills, but torchrun started {len(rounds)} times: another rank died"
        )
    starts = [{row["event"]: row["time"] for row in own if row["attempt"] == n} for n in range(len(rounds))]
    return ElasticRun(
        ranks=ranks,
        interval=job.interval,
        steps=job.steps,
        checkpoint_bytes=job.checkpoint_bytes,
        kills=tuple(
            (moment - start["loaded"], kill.rank)
            for moment, start, kill in zip(killed, starts, kills, strict=False)
        ),
        wall_s=own[-1]["time"] - begin,
        steps_s=tuple(took["step"]),
        kept_s=sum(kept.values()),
        saves_s=tuple(took["saved"]),
        first_start_s=starts[0]["loaded"] - begin,
        restarts=tuple(_restarted(*one) for one in zip(killed, rounds[1:], starts[1:], strict=True)),
        fingerprint={**machine_fingerprint("GLOO_"), "scheduler": own[0]["scheduler"]},
    )


def _restarted(killed: float, meeting: _Round, start: dict[str, float]) -> Restarted:
    """Return the stages of one restart; log times in milliseconds are kept from making one negative."""
    noticed = max(killed, meeting.noticed or meeting.meeting)
    return Restarted(
        detect_s=noticed - killed,
        stop_s=max(0.0, meeting.meeting - noticed),
        rendezvous_s=meeting.met - meeting.meeting,
        process_s=max(0.0, start["begun"] - meeting.met),
        import_s=start["imported"] - start["begun"],
        init_s=start["initialized"] - start["imported"],
        load_s=start["loaded"] - start["initialized"],
    )
