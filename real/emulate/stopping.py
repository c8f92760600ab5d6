"""Remove the resources of a block when the program ends for any reason.

Python calls signal handlers in the main thread only; in any other thread these blocks change nothing.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_WATCH = """
import sys
sys.stdin.read()
from ringside.real.emulate import namespaces
namespaces.remove(namespaces.orphaned())
"""


@contextmanager
def guarded() -> Iterator[None]:
    """Remove the emulated network of this process even if it is killed inside the block.

    A killed program cannot clean up. The guard, another process, holds the reading end of a pipe, which
    closes when the owner ends for any reason.
    """
    owner = os.getpid()
    guard = subprocess.Popen(
        [sys.executable, "-P", "-c", _WATCH],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        if os.getpid() == owner:  # not a child that was forked inside the block
            guard.kill()
            guard.communicate()


_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """Leave the block on SIGTERM and SIGHUP as on Ctrl-C, instead of ending the program at once."""
    with _handled([number for number in _STOPPING if signal.getsignal(number) is signal.SIG_DFL], _exit):
        yield


@contextmanager
def deferred() -> Iterator[None]:
    """Defer signals that would stop the program until the block is done."""
    arrived: list[int] = []
    try:
        with _handled(_STOPPING, lambda number, _: arrived.append(number)):
            yield
    finally:
        for number in arrived:
            signal.raise_signal(number)


@contextmanager
def _handled(
    numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _exit(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
