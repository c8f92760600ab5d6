"""What ``-v`` has modules tell on stderr: once what was decided and why, twice what came of it too.

Modules log by `logging` as any library does, where something is decided; here alone it is shown.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ringside.door import plain

_FORMATS = {logging.INFO: "ringside: %(message)s", logging.DEBUG: "ringside: %(name)s: %(message)s"}


@contextmanager
def told(times: int) -> Iterator[None]:
    """Have decisions told while it lasts; with ``times`` above 1 details too, each with its module."""
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
    """Writes to what is stderr now: above a progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(plain(self.format(record)), file=sys.stderr, flush=True)
        except OSError:
            self.handleError(record)
