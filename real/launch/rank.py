"""How a rank that torchrun starts lives and ends."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from real.launch.follow import die_with_parent


def live(work: Callable[[], None]) -> NoReturn:
    """Do the rank's work, die with the parent, and leave at once when all is done; an error takes its way.

    Threads that torch has left behind sometimes abort an interpreter that ends in the usual way.
    """
    die_with_parent()
    work()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
