"""A common start, so that a collective's time holds no waiting for ranks that were let go late."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

_AHEAD_S = 0.002
_SPIN_S = 0.0003


class StartingGun:
    """Lets all ranks of a process group go at once.

    Ranks of one machine share its monotonic clock: the first rank names a moment a little ahead and
    everybody waits for it. Ranks of several machines have nothing better than a barrier.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # where ranks share cores, word of the moment takes as many times longer to reach them all
        self._ahead = _AHEAD_S * max(1.0, dist.get_world_size() / (os.cpu_count() or 1))
        boots: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(boots, _boot())
        self._shared = len(set(boots)) == 1 and bool(boots[0])

    def wait(self) -> None:
        """Return on all ranks at the same moment."""
        dist.barrier()
        if not self._shared:
            return
        moment = torch.tensor([time.monotonic() + self._ahead], dtype=torch.float64, device=self._device)
        dist.broadcast(moment, 0)
        start = float(moment.item())
        time.sleep(max(start - time.monotonic() - _SPIN_S, 0.0))
        while time.monotonic() < start:
            pass


def _boot() -> str:
    """What tells one running machine from another; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        return ""
