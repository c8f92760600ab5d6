"""The machine of a measurement; PyTorch is not needed."""

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def machine_fingerprint(*prefixes: str) -> dict[str, str]:
    """Return host, CPU, system, and every variable of this process that begins with one of the prefixes."""
    facts = {
        "host": platform.node(),
        "cpu": cpu_model(),
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "scheduler": scheduler(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
    }
    steering = {key: value for key, value in os.environ.items() if key.startswith(prefixes)}
    return {**facts, **dict(sorted(steering.items()))}


def run_first() -> None:
    """Give this thread, and those it starts later, priority over the machine's ordinary programs.

    The network's work then does not wait for a core, some 5 ms each time. Without permission nothing changes;
    `scheduler` shows the result.
    """
    if sys.platform == "linux":
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))


@contextmanager
def begun_first() -> Iterator[None]:
    """Start everything in the block with the priority of `run_first`, including its children."""
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    run_first()
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.sched_setscheduler(0, *before)


def scheduler() -> str:
    """Return the name of this thread's scheduling policy; empty where the system does not provide it."""
    if sys.platform != "linux":
        return ""
    names = ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR")
    policy = os.sched_getscheduler(0)
    return next((name for name in names if getattr(os, name) == policy), str(policy))


def cpu_model() -> str:
    """Return the processor's name from the operating system.

    From /proc: py-cpuinfo takes a second in every run, and psutil does not know the name.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
