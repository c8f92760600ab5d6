"""Descendants of a process, and the addresses on which they listen."""

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
