"""The process of a rank started by torchrun."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ringside.real.launch.follow import die_with_parent


def live(carry_out: Callable[[Path, Path], None]) -> NoReturn:
    """Carry out the job of the command line, ``JOB ROWS``, and exit at once; errors propagate.

    The rank dies with its parent. It skips the interpreter's regular exit, which threads left behind by torch
    sometimes abort.
    """
    die_with_parent()
    carry_out(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
