"""Optimizers whose owners broadcast updated parameters, after every rank has summed all gradients.

Each parameter has one owner in a group. The bytes equal those of an all-gather, but there is one broadcast
per tensor, or per owner, and each passes all ranks of the group.
"""

from collections.abc import Sequence

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.program import Group
from ringside.sim.training.ddp.plan import Replicated, StepPlan
from ringside.sim.training.fsdp_policy import BUFFERS, GRADIENTS, OPTIMIZER, PARAMETERS
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.memory.optimizers import Optimizer
from ringside.sim.training.mesh import DATA
from ringside.sim.training.stage import RankList
from ringside.sim.training.zero.partition import MASTER, ZeroPolicy, dealt, hold_states, most, step_on
from ringside.sim.workload.workload import Tensor

REDUCE = "reduce"
"""The lane on which gradients are flattened before they are summed."""


class ZeroRedundant(Replicated):
    """torch's ZeroRedundancyOptimizer beside DistributedDataParallel: one broadcast per parameter.

    As in torch/distributed/optim/zero_redundancy_optimizer.py, PyTorch 2.13, with neither
    ``parameters_as_bucket_view`` nor ``overlap_with_ddp``.
    """

    def __init__(self, rank: RankList, job: StepPlan, group: Group) -> None:
        super().__init__(rank, job, group)
        self._own = rank
        self._ranks = group
        self._parts = dealt(job.workload.parameters, len(group.ranks))

    @property
    def updated_nbytes(self) -> int:
        """Bytes of the largest rank's parameters, whose update the others wait for."""
        return max(sum(tensor.nbytes for tensor in own) for own in self._parts)

    def hold(self, optimizer: Optimizer) -> None:
        """Hold parameters, gradients and buckets, and the states of the largest rank."""
        nbytes = self.job.workload.totals.nbytes
        views = self.job.ddp.gradient_as_bucket_view
        for pool, size in ((PARAMETERS, nbytes), (GRADIENTS, nbytes), ("buckets", 0 if views else nbytes)):
            self._own.take(pool, size)
        self._own.take(OPTIMIZER, optimizer.states * self.updated_nbytes)

    def update(self, seconds: float) -> None:
        """Update, then broadcast all ranks' parameters."""
        self._own.compute(seconds, "optimizer", "optimizer")
        broadcast(
            self._own,
            self._ranks,
            [
                (owner, tensor.name, tensor.nbytes, tensor.dtype)
                for owner, own in enumerate(self._parts)
                for tensor in own
            ],
        )


class HybridZero:
    """InternEvo's hybrid ZeRO-1: optimizers are sharded within ``shard`` groups of the ranks.

    Gradients of the last micro-batch are summed among all data-parallel ranks, in buckets of limited size.
    The host waits for one bucket before it sends the next, and the last one goes when
    backward is over (internlm/solver/optimizer/hybrid_zero_optim.py, overlap_sync_grad). After the step each
    owner broadcasts its whole part at once. Parameters are kept in ``policy.dtype``, beside copies in
    float32 on the ranks that update them.
    """

    def __init__(self, rank: RankList, layers: Sequence[RankLayer], policy: ZeroPolicy) -> None:
        self.rank = rank
        self._layers = layers
        self._policy = policy
        along = rank.communicators.along
        self._everybody = along(rank.rank, *DATA)
        self._group = along(rank.rank, "shard")
        self._tensors = [tensor for layer in layers for tensor in layer.parameters]
        self._parts = dealt(self._tensors, len(self._group.ranks))
        self._bucket: list[Tensor] = []
        self._summed: int | None = None
        self._made = 0

    @property
    def updated_nbytes(self) -> int:
        """Bytes of the parameters that the optimizer of the largest rank updates."""
        return most(self._parts) * ITEMSIZE[MASTER]

    def hold(self, optimizer: Optimizer) -> None:
        """Hold all parameters, and the rank's own copies and states."""
        self.rank.take(PARAMETERS, self._nbytes(self._tensors))
        hold_states(self.rank, optimizer, most(self._parts))

    def before_forward(self, layer: int) -> None:
        """Do nothing: the parameters are whole."""

    def after_forward(self, layer: int) -> None:
        """Keep the parameters."""

    def before_backward(self, layer: int) -> None:
        """Allocate the layer's gradients in the step's first backward."""
        nbytes = self._nbytes(self._layers[layer].parameters)
        if self._made < self._nbytes(self._tensors):
            self.rank.take(GRADIENTS, nbytes)
            self._made += nbytes

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Put the layer's gradients into the bucket, and send it before it would be too large."""
        for tensor in reversed(self._layers[layer].parameters) if last else ():
            filled = sum(one.count for one in self._bucket)
            if self._bucket and filled + tensor.count > self._policy.reduce_bucket_size:
                self._send()
            self._bucket.append(tensor)

    def after_step(self) -> None:
        """Send the last bucket, and wait for all sums."""
        if self._bucket:
            self._send()
        self.rank.wait(self._summed)

    def update(self, seconds: float) -> None:
        """Cast the rank's own gradients, update, cast the parameters back, gather all parts."""
        step_on(self.rank, self._policy, most(self._parts), seconds)
        self.rank.give(GRADIENTS, self._made)
        broadcast(
            self.rank,
            self._group,
            [
                (owner, f"the parameters of rank {owner}", self._nbytes(own), self._policy.dtype)
                for owner, own in enumerate(self._parts)
                if own
            ],
        )

    def _send(self) -> None:
        if self._summed is not None:
            self.rank.hold(self._summed)
        nbytes = self._nbytes(self._bucket)
        self.rank.take(BUFFERS, nbytes)
        made = self.rank.last()
        self.rank.compute(self._policy.seconds(2 * nbytes), "flat bucket", "copy", lane=REDUCE, after=made)
        ranks = len(self._everybody.ranks)
        summed = Collective("all_reduce", ranks, nbytes, dtype=self._policy.dtype, redop="avg")
        after = self.rank.last(REDUCE) or made
        self._summed = self.rank.call(self._everybody, summed, "all-reduce of gradients", after=after)
        self.rank.give(BUFFERS, nbytes)
        self._bucket = []

    def _nbytes(self, tensors: Sequence[Tensor]) -> int:
        return sum(tensor.count for tensor in tensors) * self._policy.itemsize


def broadcast(rank: RankList, group: Group, parts: Sequence[tuple[int, str, int, str]]) -> None:
    """Broadcast all parts, each from its owner in the group: all launched at once, then waited for.

    A part is its owner, its name, its bytes and their type.
    """
    calls = [
        rank.call(group, Collective("broadcast", len(group.ranks), nbytes, root=owner, dtype=dtype),
                  f"broadcast of {name}")
        for owner, name, nbytes, dtype in parts
    ]  # fmt: skip
    for call in calls:
        rank.wait(call)
