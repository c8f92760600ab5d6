"""The machine under a measurement, as far as it can be told without PyTorch."""

import os
import platform
import sys
from pathlib import Path


def machine_fingerprint(*prefixes: str) -> dict[str, str]:
    """Host, CPU, system, and every variable of this process that begins with one of the prefixes."""
    found = {
        "host": platform.node(),
        "cpu": cpu_model(),
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "scheduler": scheduler(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
    }
    steering = {key: value for key, value in os.environ.items() if key.startswith(prefixes)}
    return {**found, **dict(sorted(steering.items()))}


def scheduler() -> str:
    """The system's name for the rule that gives this thread a core; empty where it does not say."""
    if sys.platform != "linux":
        return ""
    names = ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR")
    policy = os.sched_getscheduler(0)
    return next((name for name in names if getattr(os, name) == policy), str(policy))


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
