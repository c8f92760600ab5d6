"""The process of a rank started by torchrun: ``python -m ringside.real.launch.rank WORKER JOB ROWS``."""

import os
import sys
from importlib import import_module
from pathlib import Path

from ringside.real.launch.parent import die_with_parent


def main() -> None:
    """Let the module carry out the job of the command line, and exit at once; errors propagate.

    The rank dies with its parent. It skips the interpreter's regular exit, which threads left behind by torch
    sometimes abort.
    """
    die_with_parent()
    worker, *files = sys.argv[1:]
    import_module(worker).carry_out(*map(Path, files))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
