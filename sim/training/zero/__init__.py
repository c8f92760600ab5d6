"""Sharded optimizers: DeepSpeed's ZeRO, torch's ZeroRedundancyOptimizer, InternEvo's hybrid ZeRO."""

from ringside.sim.training.zero.broadcasts import HybridZero, ZeroRedundant
from ringside.sim.training.zero.policy import ZeroPolicy
from ringside.sim.training.zero.stages import ReducedWhole
from ringside.sim.training.zero.third import DealtOut

__all__ = ["DealtOut", "HybridZero", "ReducedWhole", "ZeroPolicy", "ZeroRedundant"]
