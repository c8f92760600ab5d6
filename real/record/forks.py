"""One process that has imported PyTorch and all of recording, from which each rank's is forked.

``python -m ringside.real.record.forks`` reads a `Fork` in each line of its standard input, and writes one
line, ``RANK CODE``, where a rank ends. When its input ends, or it gets SIGTERM, all ranks end.
"""

import gc
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import NoReturn

from ringside.real.record import keeper
from ringside.real.record.part import Fork
from ringside.real.record.script.worker import begin

_PAUSE_S = 0.05


def main() -> None:
    """Fork ranks until there are no more, then end those that run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    gc.freeze()  # what ranks share is neither looked at nor copied
    running: dict[int, int] = {}
    try:
        for rank, order, log in _forks(running):
            process = keeper.forked()
            if not process:
                _rank(order, log)
            running[process] = rank
    finally:
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        with suppress(ChildProcessError):
            while True:
                os.wait()
        os._exit(0)


def _forks(running: dict[int, int]) -> Iterator[Fork]:
    """Yield the orders of the standard input, and report ranks that end meanwhile."""
    begun = b""
    while True:
        for process in list(running):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                print(running.pop(process), os.waitstatus_to_exitcode(status), flush=True)
        if select.select([0], [], [], _PAUSE_S if running else None)[0]:
            more = os.read(0, 2**16)
            if not more:
                return
            *lines, begun = (begun + more).split(b"\n")
            yield from map(Fork.read, lines)


def _rank(order: str, log: str) -> NoReturn:
    """Run one rank in this forked process; it shares only the imported modules with the others."""
    for file, flags, places in ((os.devnull, os.O_RDONLY, [0]), (log, os.O_WRONLY | os.O_APPEND, [1, 2])):
        opened = os.open(file, flags)
        for place in places:
            os.dup2(opened, place)
        os.close(opened)
    keeper.keep(partial(begin, order))


if __name__ == "__main__":
    main()
