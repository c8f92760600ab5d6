"""NCCL's collectives as they are measured: few physical parameters, a correction, and how sure both are.

    time = (kernel^8 + host^8)^(1/8) * exp(correction)

The *kernel* is counted in `messages`: what each hop costs in latency, in a gap and in bandwidth, for the
chunks and channels that NCCL really uses. The *host* is what one process needs to launch on all the GPUs
that it drives. The *correction* is a smooth function of message size and channels (`model`). Which algorithm
and protocol runs is the tuner's affair and no part of this. `ringside.validation.measured` fits it.
"""
