"""Processes: Python's own, descendants of one, and the addresses on which they listen."""

import subprocess
import sys
from contextlib import suppress

import psutil


def descendants(pid):
    """Return all descendants of a process."""
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def listening(pid):
    """Return the addresses on which a process and its descendants listen, a set for each."""
    found = {}
    for process in [psutil.Process(pid), *descendants(pid)]:
        with suppress(psutil.Error):
            ports = [one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
            found[process.pid] = {one.laddr.ip for one in ports}
    return found


def python(*words, check=True, **more):
    """Run Python with these words, and return what became of it."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, **more)
    assert not (check and done.returncode), done.stderr
    return done
