"""What a command that was started has started itself, and what of it other machines could reach."""

from contextlib import suppress

import psutil


def descendants(pid):
    """The processes that a process started, and those that they started."""
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def listening(pid):
    """The addresses on which a process, or one that it started, waits for connections; a set for each."""
    found = {}
    for process in [psutil.Process(pid), *descendants(pid)]:
        with suppress(psutil.Error):
            ports = [one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
            found[process.pid] = {one.laddr.ip for one in ports}
    return found
