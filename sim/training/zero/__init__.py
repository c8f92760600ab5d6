"""Sharded optimizers: DeepSpeed's ZeRO, torch's ZeroRedundancyOptimizer, InternEvo's hybrid ZeRO."""
