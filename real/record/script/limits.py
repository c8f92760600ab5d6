"""What a script may not do while it is recorded: use the network, or start processes that load data."""

import os
import sys
from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any

from ringside.real.record.script import places
from ringside.real.record.script.tape import TAPE

_WRITES = os.O_WRONLY | os.O_RDWR
_LOCAL = ("127.0.0.1", "::1", "localhost")
_NETWORK = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo")
"""Python's audit events of its sockets; what other languages' code sends is not seen."""

_quiet = False


def install(scratch: str) -> None:
    """See the script's doings; ``scratch`` is the folder in which it may write unnoticed."""
    see: dict[str, Callable[[Any], None]] = {
        "open": partial(_opened, scratch),
        "os.fork": _forked,
        "os.forkpty": _forked,
        **{event: partial(_connected, event) for event in _NETWORK},
    }

    def audit(event: str, arguments: Any) -> None:
        if event in see:  # most events are not, and Python raises them often
            see[event](arguments)

    sys.addaudithook(audit)
    _load_in_process()


def _forked(_: Any) -> None:
    where = places.caller()
    TAPE.notes[f"the script forks{f' at {where}' if where else ''}; its children are not recorded"] += 1


def _opened(scratch: str, arguments: Any) -> None:
    global _quiet
    path, _, flags = arguments
    if _quiet or not isinstance(path, str | os.PathLike) or not flags & _WRITES:
        return
    _quiet = True
    try:
        text = os.path.realpath(os.fspath(path))
        if isinstance(text, str) and not text.startswith((scratch, "/dev/", "/proc/", "/tmp/torchinductor")):
            what = os.path.basename(text) if TAPE.with_places else "files, which --with-source names"
            TAPE.notes[f"the script writes {what}"] += 1
    finally:
        _quiet = False


def _connected(event: str, arguments: Any) -> None:
    host = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
    host = host[0] if isinstance(host, tuple) and host else host
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    if isinstance(host, str) and (host in _LOCAL or not host or host.startswith("/")):
        return
    TAPE.notes["the script asks for the network, which recording denies it"] += 1
    raise ConnectionRefusedError("no network while a script is recorded")


def _load_in_process() -> None:
    """Have loaders without processes: what they load is the same."""
    from torch.utils.data import DataLoader

    make = DataLoader.__init__
    of_processes = (
        *("num_workers", "prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"),
        "worker_init_fn",
    )

    @wraps(make)  # libraries look up its parameters
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature(make).bind(self, *args, **kwargs).arguments
        make(**{name: value for name, value in given.items() if name not in of_processes})

    DataLoader.__init__ = made  # type: ignore[method-assign]
