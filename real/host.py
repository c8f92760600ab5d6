"""What a measurement depends on and should be remembered with it: hardware, versions, settings."""

import os
import platform
from pathlib import Path

import torch


def fingerprint() -> dict[str, str]:
    """CPU, GPU, driver, versions and every NCCL_* and GLOO_* variable of this process."""
    found = {
        "host": platform.node(),
        "cpu": cpu_model(),
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["gpus"] = str(torch.cuda.device_count())
        found["cuda"] = str(torch.version.cuda)
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        found["driver"] = _driver()
    steering = {key: value for key, value in os.environ.items() if key.startswith(("NCCL_", "GLOO_"))}
    return {**found, **dict(sorted(steering.items()))}


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _driver() -> str:
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return ""
    return first.partition(":")[2].strip()
