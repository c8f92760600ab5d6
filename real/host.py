"""What a measurement depends on and should be remembered with it: hardware, versions, settings."""

import os
from pathlib import Path

import torch

from ringside.real.backends import ON_GPU
from ringside.real.machine import machine_fingerprint


def fingerprint() -> dict[str, str]:
    """CPU, GPU, driver, versions and every NCCL_* and GLOO_* variable of this process."""
    found = {"torch": str(torch.__version__)}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["gpus"] = str(torch.cuda.device_count())
        found["cuda"] = str(torch.version.cuda)
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        found["driver"] = _driver()
    return machine_fingerprint("NCCL_", "GLOO_") | found


def own_device(backend: str) -> torch.device:
    """What this rank computes on, as one of torchrun's: with NCCL the GPU of its number on the machine."""
    if backend not in ON_GPU:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def _driver() -> str:
    # which says open or closed kernel module as well; NVML, by nvidia-ml-py, gives the number alone
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return ""
    return first.partition(":")[2].strip()
