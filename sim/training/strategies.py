"""Data-parallel strategies, and the facts about them and their frameworks that several files ask for."""

STRATEGIES = (
    *("ddp", "data_parallel", "fsdp", "fsdp1", "hsdp", "zero1", "zero2", "zero3"),
    *("megatron_ddp", "distributed_optimizer", "megatron_fsdp", "zero_redundancy", "hybrid_zero"),
)
"""Data-parallel strategies: each rank has all parameters, or they are sharded; hsdp shards within machines.

`ringside.sim.training.zero` and `ringside.sim.training.zero.distributed_optimizer` describe the other ones.
"""

FSDP = ("fsdp", "fsdp1", "hsdp", "megatron_fsdp")
"""Strategies that shard parameters, and gather them for every pass: torch's, and Megatron-LM's own."""

FSDP2 = ("fsdp", "hsdp")
"""Strategies of torch's ``fully_shard``, which shards each module that a script gives it as a unit."""

TORCH_FSDP = ("fsdp", "fsdp1", "hsdp")
"""Strategies of torch's FSDP, which may keep parameters gathered between forward and backward."""

MEGATRON = ("megatron_ddp", "distributed_optimizer")
"""Megatron-LM's strategies: 16-bit parameters, a buffer of gradients, and an optimizer's float32 copies.

Each data-parallel rank has all of these, or a part of the copies and of the optimizer's states.
"""

COPIES = ("ddp", "data_parallel", "megatron_ddp", "zero_redundancy")
"""Strategies with all parameters and gradients on each data-parallel rank, as in DistributedDataParallel."""

AT_ONCE = ("ddp", "data_parallel")
"""Strategies that pass the whole batch at once by default, with data parallelism alone."""

BUCKETS = ("ddp", "zero_redundancy")
"""Strategies whose gradients go into DistributedDataParallel's buckets."""

FUSING = (*MEGATRON, "megatron_fsdp", "hybrid_zero")
"""Strategies of frameworks that fuse products of one input, as Megatron-LM does."""

GROUPS = ("hsdp", "distributed_optimizer", "hybrid_zero")
"""Strategies that shard within groups of ``shard`` ranks."""

SCHEDULES_OF = {
    "zero1": ("DeepSpeed", ("1f1b",)),
    **dict.fromkeys(MEGATRON, ("Megatron-LM", ("1f1b", "interleaved1f1b"))),
    "hybrid_zero": ("InternEvo", ("1f1b", "interleaved1f1b")),
}
"""Pipeline schedules by framework, for frameworks that lack some."""

SYNCING = ("ddp", "zero_redundancy", *FSDP)
"""Strategies that reduce gradients in every backward by default (``no_sync``): torch's, and all FSDP."""

OFFLOADS = ("offload", "infinity")
"""Words in the names of strategies that keep state in the host's memory or on its disks."""

ULYSSES_STRATEGIES = ("zero1", "zero2", "zero3")
"""Strategies whose ranks share sequences only by all-to-alls, as DeepSpeed-Ulysses does.

Megatron-DeepSpeed, megatron/core/parallel_state.py, initialize_model_parallel.
"""

CONTEXT_STRATEGIES = ("ddp", *FSDP, *MEGATRON, *ULYSSES_STRATEGIES)
"""Strategies whose ranks may share sequences."""

CONTEXT_METHODS = {
    **dict.fromkeys(ULYSSES_STRATEGIES, "ulysses"),
    **dict.fromkeys((*MEGATRON, "megatron_fsdp"), "zigzag"),
}
"""Default exchange of keys and values: DeepSpeed's only method; Megatron-LM's ``p2p``."""

TORCH_CONTEXT_METHOD = "all-gather"
"""The same for torch's strategies (``_ContextParallelOptions``): gathered, the causal mask balanced."""

CLIPPING = (*MEGATRON, "megatron_fsdp")
"""Strategies of frameworks that clip gradients by default: Megatron-LM's ``--clip-grad`` is 1.0."""

REDUCING = (*FSDP, *MEGATRON)
"""Strategies that may sum gradients in a type of their own."""

FSDP_DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn")
"""Types in which FSDP may gather parameters, the last by torchao; gradients are summed in the others."""

EXPERT_STRATEGIES = ("ddp", "fsdp", *MEGATRON, "megatron_fsdp")
"""Strategies whose ranks may shard experts."""
