"""A process that outlives its owner and then takes down what the owner could not.

No program can tidy up after it has been killed outright; one that waits for its end can. The guard
holds the reading end of a pipe: when the owner ends, however that comes about, the pipe does.
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
    """If this process is killed inside the block, its emulated network is removed all the same."""
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
        if os.getpid() == owner:  # and not a child that was forked inside the block
            guard.kill()
            guard.communicate()
