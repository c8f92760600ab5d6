"""Moments of a step, on the clock of whoever computes: the host, or a GPU that runs behind it."""

import time
from typing import Any

import torch


class HostStamps:
    """Moments of a rank that computes on its CPU: seconds of the machine's monotonic clock."""

    def begin(self) -> None:
        """The step begins; nothing has to be prepared."""

    def now(self) -> float:
        """The present moment."""
        return time.monotonic()

    def seconds(self, stamp: Any) -> float:
        """The moment in seconds."""
        return float(stamp)


class DeviceStamps:
    """Moments of a rank that computes on a CUDA device: events in the current stream.

    A stamp is when the device gets there, not when the host asked. Seconds are those of the machine's
    monotonic clock too, which all ranks of a machine share.
    """

    def __init__(self) -> None:
        self._host = 0.0
        self._first = self.now()

    def begin(self) -> None:
        """The step begins: the device is idle, so both clocks show the same moment."""
        torch.cuda.synchronize()
        self._host = time.monotonic()
        self._first = self.now()

    def now(self) -> torch.cuda.Event:
        """When the device has done all that it was asked for in the current stream."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, stamp: Any) -> float:
        """The moment in seconds; waits for it."""
        stamp.synchronize()
        return self._host + float(self._first.elapsed_time(stamp)) / 1e3


Stamps = HostStamps | DeviceStamps


def stamps(device: torch.device) -> Stamps:
    """The clock of the device."""
    return DeviceStamps() if device.type == "cuda" else HostStamps()


def memory_bandwidth(device: torch.device, nbytes: int = 2**27) -> float:
    """Bytes/s, reads and writes together, of a division in place: what a bucket goes through."""
    data, clock = torch.ones(nbytes // 4, device=device), stamps(device)
    seconds = []
    for _ in range(5):
        clock.begin()
        begin = clock.now()
        data.div_(1.0)
        seconds.append(clock.seconds(clock.now()) - clock.seconds(begin))
    return 2 * nbytes / sorted(seconds)[2]
