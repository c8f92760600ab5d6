"""Time on a rank: a common start for all ranks, and time stamps on the host's or the device's clock.

With a common start, a collective's time includes no waiting for ranks that started late. A GPU runs behind
its host, so its stamps are its own.
"""

import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

_AHEAD_S = 0.002
_SPIN_S = 0.0003


class StartingGun:
    """Starts all ranks of a process group at once.

    Ranks of one machine share its monotonic clock: the first rank sends a time shortly ahead, at which all
    start. Ranks of several machines use a barrier.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # where ranks share cores, the message with the start time takes proportionally longer to arrive
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


class HostStamps:
    """Stamps of a rank that computes on its CPU: seconds of the machine's monotonic clock."""

    def begin(self) -> None:
        """Begin a step; nothing to prepare."""

    def now(self) -> float:
        """Return the present time."""
        return time.monotonic()

    def seconds(self, stamp: Any) -> float:
        """Return the stamp in seconds."""
        return float(stamp)


class DeviceStamps:
    """Stamps of a rank that computes on a CUDA device: events in the current stream.

    A stamp is the moment at which the device reaches it, not the moment of the host's call. Seconds are those
    of the machine's monotonic clock, which all ranks of a machine share.
    """

    def __init__(self) -> None:
        self._host = 0.0
        self._first = self.now()

    def begin(self) -> None:
        """Begin a step: the device is idle, so both clocks show the same moment."""
        torch.cuda.synchronize()
        self._host = time.monotonic()
        self._first = self.now()

    def now(self) -> torch.cuda.Event:
        """Return an event that fires when the device has completed all work queued in the current stream."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, stamp: Any) -> float:
        """Return the stamp in seconds, after waiting for it."""
        stamp.synchronize()
        return self._host + float(self._first.elapsed_time(stamp)) / 1e3


Stamps = HostStamps | DeviceStamps


def stamps(device: torch.device) -> Stamps:
    """Return the clock of the device."""
    return DeviceStamps() if device.type == "cuda" else HostStamps()


def memory_bandwidth(device: torch.device, nbytes: int = 2**27) -> float:
    """Return the bytes/s, reads plus writes, of an in-place division, as on a bucket."""
    data, clock = torch.ones(nbytes // 4, device=device), stamps(device)
    seconds = []
    for _ in range(5):
        clock.begin()
        begin = clock.now()
        data.div_(1.0)
        seconds.append(clock.seconds(clock.now()) - clock.seconds(begin))
    return 2 * nbytes / median(seconds)


def _boot() -> str:
    """Return an identifier of this boot of the machine; empty where the system gives none.

    psutil gives only the time of the boot, which machines that start together share.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        return ""
