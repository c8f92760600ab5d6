"""Record an unmodified PyTorch training script, rank by rank, on a machine without GPUs."""
