"""``apex``, where it is not installed: its optimizers and norms by PyTorch's own."""

from typing import Any

import torch

from ringside.real.record.shims.fused import fused
from ringside.real.record.shims.registry import is_installed, module

PACKAGE = "apex"


class ApexRMSNorm(torch.nn.Module):
    """``apex.normalization.FusedRMSNorm``."""

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, **_: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(normalized_shape))

    def forward(self, x: Any) -> Any:
        """Normalise."""
        return fused("apex.rms_norm", x, self.weight)


def make() -> None:
    """Make the modules, unless the real ones are here."""
    if is_installed(PACKAGE):
        return
    adam, sgd = torch.optim.AdamW, torch.optim.SGD
    module("apex.optimizers", FusedAdam=adam, FusedSGD=sgd)
    module("apex.normalization", FusedLayerNorm=torch.nn.LayerNorm, FusedRMSNorm=ApexRMSNorm)
