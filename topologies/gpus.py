"""Which GPUs the named machines have, as the driver spells them."""

import re

from topologies.catalogue import make
from topologies.graph import ranks

_A100_40, _A100_80 = r"A100-SXM4?(?!-80GB)", r"A100-SXM4?(?!-40GB)"
_H100 = r"\bH100(?!.*(PCIE|NVL|64GB))"

GPUS = {
    **dict.fromkeys(("dgx1-v100", "abci-v100", "summit-v100"), r"V100-SXM2"),
    "dgx2-v100": r"V100-SXM3",
    **dict.fromkeys(("dgx-a100", "perlmutter-a100"), f"{_A100_40}|{_A100_80}"),
    **dict.fromkeys(("abci-a100", "polaris-a100", "aws-p4d", "azure-ndv4"), _A100_40),
    "aws-p4de": _A100_80,
    "a100-pcie4": r"A100.*PCIE",
    **dict.fromkeys(("dgx-h100", "aws-p5", "gcp-a3mega", "azure-ndv5", "kestrel-h100", "h100-1gpu"), _H100),
    "mn5-h100": r"\bH100( 64GB)?$",  # the driver does not say that they are of 64 GB
    "dgx-h200": r"\bH200",
    "alps-gh200": r"\bGH200",
    **dict.fromkeys(("dgx-b200", "gcp-a4"), r"\bB200"),
    "gb200-nvl72": r"\bGB200",
    "hgx-h800": r"\bH800",
    "hgx-h20": r"\bH20\b",
    "rtx4090-pcie": r"RTX 4090(?! D)",
    "mi300x": r"\bMI300X",
}
"""By machine, what the name of its GPUs holds in capitals; plain networks have none."""


def has(machine: str, gpu: str) -> bool:
    """Whether the named machine's GPUs may be called so."""
    return re.search(GPUS[machine], gpu.upper()) is not None


def machines_with(gpu: str) -> list[str]:
    """The named machines whose GPUs may be called so."""
    return [machine for machine in GPUS if has(machine, gpu)]


def gpus_in(machine: str) -> int:
    """How many GPUs the named machine has."""
    return len(ranks(make(machine, 1)))
