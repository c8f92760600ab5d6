"""``-v``: show log messages on stderr, once for decisions and their reasons, twice for results too.

Modules log by `logging` as any library does; only this module shows the messages.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ringside.door import plain

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
    try:
        yield
    finally:
        logger.handlers = []
        logger.setLevel(logging.NOTSET)


class _Stderr(logging.Handler):
    """Writes to the current stderr: above a progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(plain(self.format(record)), file=sys.stderr, flush=True)
        except OSError:
            self.handleError(record)
