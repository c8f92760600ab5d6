"""The explorer's server: on this machine's own address only, until a signal ends it."""

import secrets
import signal
import socket
from collections.abc import Callable, Mapping
from types import FrameType

import uvicorn

from ringside.serve.application import application

ADDRESS = "127.0.0.1"

_ENDING_S = 1
"""How long requests under way may take after a signal."""


def listening(port: int) -> socket.socket:
    """Return a socket on a port of this machine, on a free one for 0; raise ValueError if it is taken."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((ADDRESS, port))
    except OSError as error:
        own.close()
        raise ValueError(f"--port {port}: {error.strerror}; write another one, or 0 for a free one") from None
    own.listen()
    return own


def serve(port: int, start: Mapping[str, Mapping[str, str]], ready: Callable[[str], None]) -> None:
    """Serve until a signal; ``ready`` gets the address, whose token cannot be guessed."""
    own = listening(port)
    host, token = f"{ADDRESS}:{own.getsockname()[1]}", secrets.token_urlsafe(16)
    config = uvicorn.Config(
        application(token, host, start), log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=_ENDING_S, lifespan="on", ws="none",
    )  # fmt: skip
    server = uvicorn.Server(config)

    def end(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, end)
    with own:
        ready(f"http://{host}/{token}/")
        server.run(sockets=[own])
