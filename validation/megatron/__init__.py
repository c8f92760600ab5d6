"""Megatron-LM's own arguments, read from a launch script or a test's YAML, in the words of `train`."""
