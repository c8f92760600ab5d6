"""The context of a measurement: hardware, versions, settings."""

import os
from pathlib import Path

import torch

from ringside.real.backends import ON_GPU
from ringside.real.machine import machine_fingerprint


def fingerprint() -> dict[str, str]:
    """Return CPU, GPU, driver, versions and every NCCL_* and GLOO_* variable of this process."""
    versions = {"torch": str(torch.__version__)}
    if torch.cuda.is_available():
        versions["gpu"] = torch.cuda.get_device_name()
        versions["gpus"] = str(torch.cuda.device_count())
        versions["cuda"] = str(torch.version.cuda)
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        versions["driver"] = _driver()
    return machine_fingerprint("NCCL_", "GLOO_") | versions


def own_device(backend: str) -> torch.device:
    """Return this rank's device under torchrun: with NCCL the GPU of its local rank."""
    if backend not in ON_GPU:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def _driver() -> str:
    # it also says whether the kernel module is open or closed; NVML, by nvidia-ml-py, gives the number alone
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return ""
    return first.partition(":")[2].strip()
