"""Training scripts as users write them, for torchrun, ``cuda`` and NCCL: small, in every common layout."""
