"""How a rank that torchrun starts lives and ends."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ringside.real.launch.follow import die_with_parent


def live(carry_out: Callable[[Path, Path], None]) -> NoReturn:
    """Carry out the job of the command line, ``JOB ROWS``, and leave at once; an error takes its way.

    The rank dies with its parent.

    Threads that torch has left behind sometimes abort an interpreter that ends in the usual way.
    """
    die_with_parent()
    carry_out(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
