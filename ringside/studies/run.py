"""Run the points of a study, by processes of this machine or of a Dask cluster, and keep every row.

The batches depend on the study alone, so the same study makes the same rows with any workers; slow batches
are returned in several parts.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from itertools import groupby, islice
from multiprocessing import resource_tracker
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import dask
from dask.system import CPU_COUNT

from ringside.studies.folder import Folder, opened
from ringside.studies.inputs import Answered, Point, Row, answer_points, digests, rows_of
from ringside.studies.study import Query, Study, made, read, text_of

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster
    from pandas import DataFrame

CONNECT_S = 10.0
"""Seconds that a Dask scheduler has to answer."""

_OWN_CLUSTER = {
    "distributed.scheduler.allowed-failures": 1,
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""A task that kills its process twice is not retried; queued tasks are not blamed for it.

Dask's web pages, open to every user of the machine, are off.
"""


def check_address(scheduler: str) -> None:
    """Raise ValueError for an invalid address of a Dask scheduler, before contacting it."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    try:
        scheme, place = parse_address(scheduler)
        get_backend(scheme).get_connector()
        host, port = parse_host_port(place)
    except (TypeError, ValueError):  # TypeError where only the name of a protocol is known
        host, port = "", 0
    if not host or not 0 < port < 2**16:
        raise ValueError(
            f"--scheduler {scheduler}: not an address of a Dask scheduler; write tcp://HOST:PORT"
        )


async def _identity(scheduler: str) -> str:
    """Return the type of the server at the address."""
    from distributed.core import rpc
    from distributed.security import Security

    keys = Security().get_connection_args("client")
    async with rpc(scheduler, timeout=CONNECT_S, connection_args=keys) as there:
        return str((await asyncio.wait_for(there.identity(), CONNECT_S + 1))["type"])


def _check_scheduler(scheduler: str) -> None:
    """Raise ValueError if no scheduler answers; a client without one waits for half a minute."""
    from distributed.utils import LoopRunner

    check_address(scheduler)
    try:
        kind = LoopRunner(asynchronous=False).run_sync(_identity, scheduler)
        problem = "" if kind == "Scheduler" else f"a {kind} answers"
    except TypeError:
        problem = "TLS needs certificates; set distributed.comm.tls in Dask's configuration"
    except (OSError, ValueError) as error:
        problem = str(error) or f"no answer within {CONNECT_S:.0f} s"
    if problem:
        raise ValueError(
            f"--scheduler {scheduler}: no Dask scheduler there ({problem}); write tcp://HOST:PORT"
        )


@contextmanager
def client_of(workers: int, scheduler: str | None) -> Iterator["Client"]:
    """Yield the client of an existing cluster, or of processes that end with this one."""
    from distributed import Client
    from distributed.utils import silence_logging_cmgr

    if scheduler:
        _check_scheduler(scheduler)
        with (
            silence_logging_cmgr(logging.CRITICAL),
            Client(scheduler, timeout=CONNECT_S, set_as_default=False) as client,
        ):
            yield client
        return
    with _own_cluster(workers) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@contextmanager
def _own_cluster(workers: int) -> Iterator["LocalCluster"]:
    """Yield processes of this machine that accept work only from this process, not from other users."""
    import cryptography  # noqa: F401 - Dask needs it for that, but its error lacks the module's name
    from distributed import LocalCluster

    with (
        TemporaryDirectory(prefix="ringside-") as scratch,
        dask.config.set({**_OWN_CLUSTER, "temporary-directory": scratch}),
    ):
        try:
            with _uninterrupted():
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    security=True,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
        except (OSError, RuntimeError) as error:
            raise RuntimeError(
                f"a process died while it started ({error}), perhaps out of memory; run the command "
                "again to continue"
            ) from None
        with cluster:
            yield cluster


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Block signals to every process of a job in processes started inside the block.

    A terminal sends Ctrl-C to all of them, a scheduler SIGTERM; this process handles both. Threads and
    processes inherit blocked signals.
    """
    resource_tracker.ensure_running()  # started later, it would unblock these signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


PARTS = 64
"""The approximate number of files of a large study: more are written more often, fewer are read faster."""

MOST_TOGETHER = 200
"""Points per file; an interrupt loses rows that are not yet in a file."""

MOST_S = 60.0
"""Seconds after which a process returns its rows, which form a file."""

MOST_WAITING = 1000
"""Files whose points a scheduler holds at once."""

FIRST = 10
"""Points run one by one until the first answer, which fixes every file's columns."""

Result = TypeVar("Result")

OnRows = Callable[[Sequence[Row]], None]


def sweep(
    study: Mapping[str, object] | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> "DataFrame":
    """Ask one question at many points, in parallel; return one row per point, as in `docs/sweep.md`.

    ``study`` is a YAML file, or its content. Rows are kept in ``folder``, a new one or that of this study,
    which then continues. ``workers`` are processes of this machine, by default one per core; ``scheduler`` is
    a Dask cluster's address instead. Processes begin by importing the calling script, so it must call this
    below ``if __name__ == "__main__":``. Raise `ringside.studies.study.StudyError` for an invalid study, or a
    folder of another one.
    """
    parsed = made(study, "study") if isinstance(study, Mapping) else read(Path(study))
    if scheduler is not None:
        check_address(scheduler)
    with opened(Path(folder), parsed) as at:
        run(at, lambda _: None, workers=workers, scheduler=scheduler)
        return at.read()


def run(folder: Folder, on_rows: OnRows, *, workers: int | None = None, scheduler: str | None = None) -> None:
    """Run every point without a row; ``on_rows`` is called with rows when they are kept.

    ``workers`` are processes of this machine; ``scheduler`` is a Dask cluster's address instead.
    """
    study, done = folder.study, folder.done()
    left = study.count - len(done)

    def keep(answer: Answered) -> None:
        folder.take(answer.inputs)
        folder.write(answer.rows)
        done.update(row["point"] for row in answer.rows)
        on_rows(answer.rows)

    if scheduler is None or not left:
        folder.check(digests(folder.inputs), finished=not left)
    if not left:
        return
    folder.check_writable()
    with client_of(min(processes(workers), left), scheduler) as client:
        if scheduler:
            folder.check(_result(client.submit(digests, [*folder.inputs], pure=False)))
        for point in islice(_left(study, done), FIRST):
            if folder.columns:
                break
            (answer,) = _answers(client, study.query, [[point]])
            if answer.rows[0]["error"] is None:
                folder.learn(answer.rows[0])
            keep(answer)
        for answer in _answers(client, study.query, _batches(study, frozenset(done))):
            keep(answer)


def estimate_s(study: Study, processes: int) -> float:
    """Estimate a study's duration by running its first point, its last and one between."""
    numbers = {0, study.count // 2, study.count - 1}
    points = [point for point in study.points() if point[0] in numbers]
    begun = perf_counter()
    rows_of(study.query, points[:1])
    once = perf_counter() - begun  # the imports and compilation of every process
    begun = perf_counter()
    rows_of(study.query, points)
    each = (perf_counter() - begun) / len(points)
    return once + each * study.count / max(1, min(processes, study.count))


def processes(workers: int | None = None, scheduler: str | None = None) -> int:
    """Return the number of processes: by default one per core of this machine, or a cluster's."""
    if scheduler is None:
        return workers or CPU_COUNT
    with client_of(0, scheduler) as client:
        return len(client.nthreads())


def _left(study: Study, done: frozenset[int] | set[int]) -> Iterator[Point]:
    return (point for point in study.points() if point[0] not in done)


def _batches(study: Study, done: frozenset[int]) -> Iterator[list[Point]]:
    """Yield batches of points: the rest of each range of numbers."""
    together = min(MOST_TOGETHER, -(-study.count // PARTS))
    for _, points in groupby(_left(study, done), lambda point: point[0] // together):
        yield list(points)


def _answers(client: "Client", query: Query, batches: Iterable[list[Point]]) -> Iterator[Answered]:
    """Yield rows of each batch as they arrive, in parts if it takes long.

    If a batch kills a worker its points run one by one.
    """
    from distributed import KilledWorker, as_completed

    batch_of: dict[Future[Answered], list[Point]] = {}
    coming = as_completed(loop=client.loop)

    def submit(some: Iterable[list[Point]]) -> None:
        for batch in some:
            future = client.submit(answer_points, query, batch, MOST_S, pure=False)
            batch_of[future] = batch
            coming.add(future)

    waiting = iter(batches)
    submit(islice(waiting, MOST_WAITING))
    for future in coming:
        batch = batch_of.pop(future)
        try:
            answer = _result(future)
        except KilledWorker:
            if len(batch) > 1:
                submit([point] for point in batch)
                continue
            ((number, values),) = batch
            what = "its process died, perhaps out of memory"
            texts = {name: text_of(value) for name, value in values.items()}
            answer = Answered([{"point": number, **texts, "error": what}], {})
        left = batch[len(answer.rows) :]
        submit([left] if left else islice(waiting, 1))
        yield answer


def _result(future: "Future[Result]") -> Result:
    """Return a worker's result."""
    from distributed.comm.core import CommClosedError

    try:
        return future.result()
    except (CancelledError, CommClosedError):  # the second while the result is fetched
        raise RuntimeError("the Dask cluster is gone; run the command again to continue") from None
