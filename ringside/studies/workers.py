"""The workers of a study: processes of this machine, or an existing Dask cluster."""

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import dask

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

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
