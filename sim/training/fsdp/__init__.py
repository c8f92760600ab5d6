"""FSDP as in PyTorch 2.13: parameters sharded over data-parallel ranks, and whole only while they are used.

`fsdp_program` is a step of FSDP2 (`FullyShardPolicy`, ``fully_shard``) or FSDP1 (`FlatPolicy`,
``FullyShardedDataParallel``) on a whole mesh; HSDP is a mesh with more than one replica. `sharded` is one
rank's `Sharing` by either policy, for a custom `Stage`. `FullyShard` with ``defers`` is what a
pipeline's runtime commands to `unshard`, `reshard` and `reduce`. `units` are gathered and reduced
as a whole, `ahead` lists units to gather ahead; the pools of bytes are `PARAMETERS`, `GATHERED`,
`FLAT`, `UNREDUCED`, `BUFFERS`, `GRADIENTS` and `OPTIMIZER`.
"""

from ringside.sim.training.fsdp.flat import FlatPolicy, FlatShard
from ringside.sim.training.fsdp.fully_shard import FullyShard
from ringside.sim.training.fsdp.policy import FullyShardPolicy, ahead
from ringside.sim.training.fsdp.step import Policy, fsdp_program, sharded, write_step
from ringside.sim.training.fsdp.units import (
    BUFFERS,
    FLAT,
    GATHERED,
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    ROOT,
    UNREDUCED,
    Unit,
    padded,
    units,
)

__all__ = [
    "BUFFERS",
    "FLAT",
    "GATHERED",
    "GRADIENTS",
    "OPTIMIZER",
    "PARAMETERS",
    "ROOT",
    "UNREDUCED",
    "FlatPolicy",
    "FlatShard",
    "FullyShard",
    "FullyShardPolicy",
    "Policy",
    "Unit",
    "ahead",
    "fsdp_program",
    "padded",
    "sharded",
    "units",
    "write_step",
]
