"""Asks the points of a study, by processes of this machine or of a Dask cluster, and keeps every row.

Which points go together depends on the study alone, so that the same study makes the same rows whoever
does the work.
"""

import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from itertools import groupby, islice
from multiprocessing import resource_tracker
from time import perf_counter
from typing import TYPE_CHECKING

import dask
from dask.system import CPU_COUNT

from ringside.studies.asking import Point, Row, rows_of
from ringside.studies.folder import Folder
from ringside.studies.study import Study

if TYPE_CHECKING:
    from distributed import Client, Future

PARTS = 64
"""Files that a large study comes in, about: more of them are more often on the disk, fewer sooner read."""

MOST_TOGETHER = 200
"""Points of one file; what an interrupt loses is what was not yet in one."""

MOST_WAITING = 1000
"""Files whose points a scheduler knows of at once."""

FIRST = 10
"""Points that are asked one after another for the first answer, which tells every file's columns."""

_DEATHS = {"distributed.scheduler.allowed-failures": 1, "distributed.scheduler.worker-saturation": 1.0}
"""What kills its process twice is not asked again; nothing waits there that would be blamed with it."""

OnRows = Callable[[Sequence[Row]], None]


def run(folder: Folder, on_rows: OnRows, *, workers: int | None = None, scheduler: str | None = None) -> None:
    """Ask every point that has no row yet; ``on_rows`` hears of rows when they are kept.

    ``workers`` are processes of this machine; ``scheduler`` is a Dask cluster's address in place of them.
    """
    study, done = folder.study, folder.done()

    def keep(rows: Sequence[Row]) -> None:
        folder.write(rows)
        done.update(row["point"] for row in rows)
        on_rows(rows)

    if len(done) == study.count:
        return
    with _client(min(processes(workers), study.count - len(done)), scheduler) as client:
        for point in islice(_left(study, done), FIRST):
            if folder.columns:
                break
            (rows,) = _answers(client, study.ask, [[point]])
            if rows[0]["error"] is None:
                folder.learn(rows[0])
            keep(rows)
        for rows in _answers(client, study.ask, _batches(study, frozenset(done))):
            keep(rows)


def estimate_s(study: Study, processes: int) -> float:
    """About how long a study takes, by asking its first point, its last and one between."""
    numbers = {0, study.count // 2, study.count - 1}
    points = [point for point in study.points() if point[0] in numbers]
    begun = perf_counter()
    rows_of(study.ask, points[:1])
    once = perf_counter() - begun  # what every process fetches and compiles
    begun = perf_counter()
    rows_of(study.ask, points)
    each = (perf_counter() - begun) / len(points)
    return once + each * study.count / max(1, min(processes, study.count))


def processes(workers: int | None = None, scheduler: str | None = None) -> int:
    """How many would ask: those of this machine, one a core unless it is said, or a cluster's."""
    if scheduler is None:
        return workers or CPU_COUNT
    with _client(0, scheduler) as client:
        return len(client.nthreads())


def _left(study: Study, done: frozenset[int] | set[int]) -> Iterator[Point]:
    return (point for point in study.points() if point[0] not in done)


def _batches(study: Study, done: frozenset[int]) -> Iterator[list[Point]]:
    """Points that go together: what is left of each stretch of numbers."""
    together = min(MOST_TOGETHER, -(-study.count // PARTS))
    for _, points in groupby(_left(study, done), lambda point: point[0] // together):
        yield list(points)


def _answers(client: "Client", ask: str, batches: Iterable[list[Point]]) -> Iterator[list[Row]]:
    """Rows of each batch as they come; where a worker dies of a batch its points are asked one by one."""
    from distributed import KilledWorker, as_completed
    from distributed.comm.core import CommClosedError

    asked: dict[Future[list[Row]], list[Point]] = {}
    coming = as_completed(loop=client.loop)

    def submit(some: Iterable[list[Point]]) -> None:
        for batch in some:
            future = client.submit(rows_of, ask, batch, pure=False)
            asked[future] = batch
            coming.add(future)

    waiting = iter(batches)
    submit(islice(waiting, MOST_WAITING))
    for future in coming:
        batch = asked.pop(future)
        submit(islice(waiting, 1))
        try:
            rows = future.result()
        except (CancelledError, CommClosedError):  # the second while rows are fetched
            raise RuntimeError(
                "the Dask cluster is gone; the same command goes on where this one was"
            ) from None
        except KilledWorker:
            if len(batch) > 1:
                submit([point] for point in batch)
                continue
            ((number, values),) = batch
            what = "the process that asked it died, perhaps for want of memory"
            rows = [{"point": number, **values, "error": what}]
        yield rows


@contextmanager
def _client(workers: int, scheduler: str | None) -> Iterator["Client"]:
    """Who does the work: a cluster that is there, or processes that go with us."""
    from distributed import Client, LocalCluster
    from distributed.utils import silence_logging_cmgr

    if scheduler:
        try:
            client = Client(scheduler, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"--scheduler {scheduler}: no Dask scheduler there ({error}); write tcp://HOST:PORT"
            ) from None
        with silence_logging_cmgr(logging.CRITICAL), client:
            yield client
        return
    with dask.config.set(_DEATHS):
        with _uninterrupted():
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        with cluster, Client(cluster, set_as_default=False) as client:
            yield client


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """What is started herein leaves Ctrl-C, which a terminal sends to every process, to this one.

    A blocked signal stays blocked in threads and processes that are begun, from their first moment.
    """
    resource_tracker.ensure_running()  # which unblocks it where it has to be started itself
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
