"""``-v``: show all notes of an answer, and log messages on stderr: decisions, and with ``-vv`` results too.

Modules log by `logging` as any library does; only this module shows the messages.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ringside.door import plain

NOTED: ContextVar[bool] = ContextVar("noted", default=False)
"""Whether answers are printed with all of their notes."""

_FORMATS = {logging.INFO: "ringside: %(message)s", logging.DEBUG: "ringside: %(name)s: %(message)s"}


@contextmanager
def log_to_stderr(times: int) -> Iterator[None]:
    """Show decisions inside the block; with ``times`` above 1 details too, each with its module."""
    level = logging.INFO if times == 1 else logging.DEBUG
    handler = _Stderr()
    handler.setFormatter(logging.Formatter(_FORMATS[level]))
    logger = logging.getLogger("ringside")
    logger.handlers = [handler]
    logger.setLevel(level)
    token = NOTED.set(True)
    try:
        yield
    finally:
        NOTED.reset(token)
        logger.handlers = []
        logger.setLevel(logging.NOTSET)


class _Stderr(logging.Handler):
    """Writes to the current stderr: above a progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(plain(self.format(record)), file=sys.stderr, flush=True)
        except OSError:
            self.handleError(record)
