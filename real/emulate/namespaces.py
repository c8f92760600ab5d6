"""Network namespaces by name, as ``ip netns`` keeps them, and their owners.

A name is ``ringside-PID-START-WHAT``: the owner's process id and start time in clock ticks since boot,
because process ids are reused. The name separates the leftovers of a dead run from a live run's network and
from everything else.
"""

import ctypes
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from pyroute2 import netns  # type: ignore[import-untyped]

DIRECTORY = Path(netns.NETNS_RUN_DIR)
_NAME = re.compile(r"ringside-(\d+)-(\d+)-\w+")
_CLONE_NEWNET = 0x40000000
_PATIENCE = 10.0


def own(what: str) -> str:
    """Return the name of this process's namespace ``what``."""
    return f"ringside-{os.getpid()}-{_start_time(os.getpid())}-{what}"


def create(name: str) -> None:
    """Create a namespace with a name; it lives until `remove`."""
    # Unsharing moves the calling thread, so a temporary thread calls it. pyroute2's `create` forks this
    # process instead, threads or not, and leaves sockets and a file behind where it is refused.
    with ThreadPoolExecutor(1) as passing:
        passing.submit(_create, name).result()


@contextmanager
def inside(name: str) -> Iterator[None]:
    """Run the calling thread in the namespace, with all that it opens or starts, until the block ends."""
    # pyroute2's pushns keeps the main thread's namespace, whichever thread calls, and in one list for all
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        enter(name)
        yield
    finally:
        netns.setns(home)
        os.close(home)


def enter(name: str) -> None:
    """Move the calling thread into the namespace permanently."""
    netns.setns(str(DIRECTORY / name), flags=0)


def ours() -> list[str]:
    """Return the names of the namespaces that this process created and still has."""
    return [name for name in netns.listnetns() if name.startswith(own(""))]


def orphaned() -> list[str]:
    """Return the names of the namespaces whose owners are dead."""
    matches = ((name, _NAME.fullmatch(name)) for name in netns.listnetns())
    return [name for name, match in matches if match and _start_time(int(match[1])) != int(match[2])]


def remove(names: list[str]) -> None:
    """Kill the processes in the namespaces, then remove these with their contents.

    Raise `TimeoutError` if a process does not die; its namespace then still exists.
    """
    deadline = time.monotonic() + _PATIENCE
    while processes := _inhabitants(names):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {processes} do not die; their network stays until they do")
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.005)
    for name in names:
        try:
            netns.remove(name)
        except OSError:
            if (DIRECTORY / name).exists():  # another process may have removed it
                raise


def _create(name: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    netns.attach(name, threading.get_native_id())


def _start_time(process: int) -> int | None:
    """Return the clock ticks from boot to the start of a process; None if it is dead or a zombie.

    Read from /proc: psutil's ``create_time`` counts from 1970, and changes when the clock is set.
    """
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def _inhabitants(names: list[str]) -> list[int]:
    """Return the processes, except this one, whose network namespace is one of those named."""
    homes = netns.ns_pids()
    return [process for name in names for process in homes.get(name, []) if process != os.getpid()]
