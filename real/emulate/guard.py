"""A process that outlives its owner and removes what the owner could not.

A killed program cannot clean up; another process that waits for its end can. The guard holds the reading end
of a pipe, which closes when the owner ends, for whatever reason.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_WATCH = """
import sys
sys.stdin.read()
from ringside.real.emulate import namespaces
namespaces.remove(namespaces.orphaned())
"""


@contextmanager
def guarded() -> Iterator[None]:
    """Remove the emulated network of this process even if it is killed inside the block."""
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
