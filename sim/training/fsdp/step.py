"""A training step of FSDP without a pipeline, as a `Program`."""

from collections.abc import Sequence
from typing import Protocol

from ringside.sim.libraries.rules import RULES
from ringside.sim.program import Operation, Program
from ringside.sim.training.fsdp.flat import FlatPolicy, FlatShard
from ringside.sim.training.fsdp.fully_shard import FullyShard
from ringside.sim.training.fsdp.policy import FullyShardPolicy
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.memory import Optimizer, find_optimizer
from ringside.sim.training.mesh import Communicators, Mesh
from ringside.sim.training.rank import RankList
from ringside.sim.training.sharing import Sharing
from ringside.sim.training.stage import Stage

Policy = FullyShardPolicy | FlatPolicy


class Sharded(Sharing, Protocol):
    """A `Sharing` that knows what a rank holds for the whole step, and what the optimizer frees."""

    def hold(self, optimizer: Optimizer) -> None:
        """Hold the shards of parameters and of the optimizer's states from the next operation on."""
        ...

    def clip(self) -> None:
        """Compute the norm of all gradients from each rank's part."""
        ...

    def update(self, seconds: float) -> None:
        """Run the optimizer's step, after which gradients are freed."""
        ...


def sharded(
    rank: RankList,
    layers: Sequence[RankLayer],
    policy: Policy,
    *,
    inputs_need_gradient: bool = False,
    defers: bool = False,
) -> FullyShard | FlatShard:
    """Return a rank's `Sharing` of the layers by a policy; see `FullyShard` for a stage of a pipeline."""
    if isinstance(policy, FlatPolicy):
        if defers:
            raise ValueError("FSDP1 does not defer its gathers and sums to a pipeline; write FSDP2's policy")
        return FlatShard(rank, layers, policy)
    return FullyShard(rank, layers, policy, inputs_need_gradient=inputs_need_gradient, defers=defers)


def fsdp_program(
    name: str,
    layers: Sequence[RankLayer],
    mesh: Mesh,
    policy: Policy,
    *,
    micro_batches: int = 1,
    optimizer: str = "adam",
    optimizer_s: float = 0.0,
    clips: bool = False,
    library: str = "nccl",
) -> Program:
    """Return a step of all ranks of a mesh, which act alike: the micro-batches in turn, then the optimizer.

    On NCCL streams overlap. On Gloo every FSDP operation is waited for at once, as in PyTorch on CPU.
    """
    if mesh.pipeline > 1:
        raise ValueError(f"{mesh.pipeline} pipeline stages; a step without a pipeline has 1")
    if micro_batches < 1:
        raise ValueError(f"{micro_batches} micro-batches; write 1 or more")
    if library not in RULES:
        raise ValueError(f"FSDP on {library!r} is not known; write nccl or gloo")
    rules = RULES[library]
    if not rules.on_stream and isinstance(policy, FlatPolicy):
        raise ValueError("FSDP1 does not run on CPU, where Gloo is; write nccl, or FSDP2's policy")
    if not layers:
        raise ValueError("a model without layers; write one or more")
    communicators = Communicators(mesh, library, workers=rules.workers)
    keeps = find_optimizer(optimizer)
    made: dict[int, list[Operation]] = {}

    def operations(number: int) -> list[Operation]:
        if number not in made:
            rank = RankList(number, communicators, blocks=not rules.on_stream)
            sharing = sharded(rank, layers, policy)
            stage = Stage(rank, layers, sharing)
            sharing.hold(keeps)
            write_step(stage, sharing, micro_batches, optimizer_s=optimizer_s, clips=clips)
            made[number] = rank.operations
        return made[number]

    return Program(name, mesh.ranks, operations, role=lambda _: 0)


def write_step(
    stage: Stage, sharing: Sharded, micro_batches: int, *, optimizer_s: float = 0.0, clips: bool = False
) -> None:
    """Write a step: each micro-batch forward and backward, clipping by the norm, the optimizer."""
    stage.pass_all(micro_batches)
    sharing.after_step()
    if clips:
        sharing.clip()
    sharing.update(optimizer_s)
