"""Processes that end with their parent."""

import ctypes
import signal
import sys


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent dies for any reason (Linux).

    By ctypes: torch's own call is private and would need torch in the process that starts torchrun.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, number)
