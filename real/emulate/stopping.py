"""Signals that stop a program, around a block with resources to clean up.

Python calls signal handlers in the main thread only; in any other thread these blocks change nothing.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """Leave the block on SIGTERM and SIGHUP as on Ctrl-C, where they would have ended the program at once."""
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
