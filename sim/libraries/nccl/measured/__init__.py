"""NCCL's collectives as measured: a few physical parameters, a correction, and their uncertainties.

    time = (kernel^8 + host^8)^(1/8) * exp(correction)

The *kernel* is counted in `messages`: each hop's latency, gap and bandwidth, for the
chunks and channels that NCCL really uses. The *host* is the time of one process to launch on all the GPUs
that it drives. The *correction* is a smooth function of message size and channels (`model`). The choice of
algorithm and protocol is the tuner's. `ringside.validation.nccl` fits the parameters.
"""
