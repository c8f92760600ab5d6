"""Optimizers dealt out: DeepSpeed's ZeRO, torch's ZeroRedundancyOptimizer, InternEvo's hybrid ZeRO."""

from sim.training.zero.broadcasts import HybridZero, ZeroRedundant
from sim.training.zero.policy import ZeroPolicy
from sim.training.zero.stages import ReducedWhole
from sim.training.zero.third import DealtOut

__all__ = ["DealtOut", "HybridZero", "ReducedWhole", "ZeroPolicy", "ZeroRedundant"]
