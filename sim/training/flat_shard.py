"""FSDP1's part in a stage: each unit is one flat parameter, gathered into the tensors that its layers use.

From torch/distributed/fsdp/_runtime_utils.py, PyTorch 2.13. Nothing is copied out. The host waits before a
gather if two flat parameters were freed and are not yet waited for (`_limiter_utils.py`). A unit is reduced
once all gradients of its flat parameter are made, whether or not its inputs need any.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.training.fsdp_collectives import predivision
from ringside.sim.training.fsdp_policy import (
    BUFFERS,
    GATHERED,
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    ROOT,
    UNREDUCED,
    Unit,
    check_float,
    units,
)
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.memory.optimizers import Optimizer
from ringside.sim.training.stage import RankList, Streams
from ringside.topologies.names import one_of

CAST = "pre-unshard"
UNSHARD = "unshard"
POST_BACKWARD = "post-backward"
ALL_REDUCE = "all-reduce"

STRATEGIES = ("full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2", "no_shard")
"""Names as in torch.distributed.fsdp.ShardingStrategy."""

FREES = ("full_shard", "hybrid_shard")
"""Strategies that free parameters after forward."""

RATE_LIMIT = 2
"""Number of freed flat parameters for which the host does not wait."""

ALIGNMENT = 16
"""Alignment in bytes of the parameters within a flat one with ``use_orig_params``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatPolicy:
    """The arguments of ``FullyShardedDataParallel``; ``backward_prefetch`` is pre, post or None.

    With ``no_sync`` gradients are summed only in the last micro-batch and stay whole until then.
    ``forward_prefetch`` follows the order of an earlier step. Hybrid strategies shard along ``shard`` and
    sum shards along ``replicate``; the others shard along both. If it ``splits`` the flat parameter into the
    tensors of its layers, as torch does, backward concatenates their gradients.
    """

    strategy: str = "full_shard"
    backward_prefetch: str | None = "pre"
    forward_prefetch: bool = False
    limit_all_gathers: bool = True
    use_orig_params: bool = False
    no_sync: bool = False
    splits: bool = True
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    memory_bandwidth: float = inf
    shard: tuple[str, ...] = ("context", "shard")
    replicate: tuple[str, ...] = ("replicate",)

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(
                f"unknown FSDP1 strategy {self.strategy!r}; write {one_of(STRATEGIES, self.strategy)}"
            )
        if self.backward_prefetch not in ("pre", "post", None):
            raise ValueError(f"a backward prefetch of {self.backward_prefetch!r}; write pre, post or None")
        for dtype in (self.param_dtype, self.reduce_dtype):
            check_float(dtype)
        if not self.memory_bandwidth > 0:
            raise ValueError(f"a memory bandwidth of {self.memory_bandwidth} bytes/s; write more than 0")

    @property
    def hybrid(self) -> bool:
        """Whether shards are summed across replicas."""
        return self.strategy.startswith("hybrid")


def flat_elements(unit: Unit, ranks: int, *, aligned: bool) -> int:
    """Return the elements of a unit's flat parameter, padded to shard evenly.

    If ``aligned``, each parameter but the first begins at a multiple of `ALIGNMENT` bytes.
    """
    total = 0
    for tensor in unit.tensors:
        if aligned:
            step = ALIGNMENT // ITEMSIZE[tensor.dtype]
            total = ceil(total / step) * step
        total += tensor.count
    return ceil(total / ranks) * ranks


@dataclass(slots=True)
class Flat:
    """A rank's state of one unit's flat parameter while its list is written."""

    unit: Unit
    numel: int
    whole: bool = False
    prefetched: bool = False
    needed: bool = False
    """Whether a later backward needs it."""
    place: int = 0
    """Its position in forward order."""
    made: int = 0
    """Bytes of its tensors' gradients, which backward has begun to make."""
    unreduced: int = 0
    """Bytes of its flat gradient."""
    has_shard: bool = False


class FlatShard:
    """A `Sharing` of flat parameters; see `FlatPolicy`."""

    def __init__(self, rank: RankList, layers: Sequence[RankLayer], policy: FlatPolicy) -> None:
        self.rank = rank
        self._layers = layers
        self._policy = policy
        self._streams = Streams(rank, policy.memory_bandwidth)
        along = rank.communicators.along
        shard = policy.shard if policy.hybrid else (*policy.shard, *policy.replicate)
        self._shard = along(rank.rank, *shard)
        self._replicate = along(rank.rank, *policy.replicate)
        self._held = {unit.name: Flat(unit, self._numel(unit)) for unit in units(layers)}
        self._of = {number: held for held in self._held.values() for number in held.unit.layers}
        self._passed: list[Flat] = []
        self._freed: list[int] = []
        """Last operations before flat parameters were freed, until the host has waited for them."""

    def hold(self, optimizer: Optimizer) -> None:
        """Hold the rank's shards of parameters and of the optimizer's states for the whole step."""
        nbytes = sum(self._own_nbytes(held) for held in self._held.values())
        self.rank.take(PARAMETERS, nbytes)
        self.rank.take(OPTIMIZER, optimizer.states * nbytes)

    def before_forward(self, layer: int) -> None:
        """Wait for the root's parameters, then for the layer's."""
        if layer == 0:
            self._passed.clear()
            for stream in (CAST, UNSHARD):
                self._streams.wait(self._streams.last(), stream)
            if ROOT in self._held:
                self._pre_forward(self._held[ROOT])
        if self._wrapped(layer):
            self._pre_forward(self._of[layer])

    def after_forward(self, layer: int) -> None:
        """Free the layer's parameters, except the root's, if the strategy does so."""
        if self._wrapped(layer):
            self._post_forward(self._of[layer])
        if layer == len(self._layers) - 1 and ROOT in self._held:
            self._post_forward(self._held[ROOT])

    def before_backward(self, layer: int) -> None:
        """Wait for the layer's parameters, and begin to gather the next unit of backward."""
        if layer == len(self._layers) - 1 and ROOT in self._held:
            self._pre_backward(self._held[ROOT])
        if self._wrapped(layer):
            self._pre_backward(self._of[layer])
        if layer in self._of and not self._of[layer].made:
            held = self._of[layer]
            held.made = self._gathered_nbytes(held)
            self.rank.take(UNREDUCED, held.made)

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Sum a unit's gradients after backward of its first layer."""
        if layer in self._of and layer == self._of[layer].unit.layers[0]:
            held = self._of[layer]
            self._join(held)
            self._post_backward(held, syncs=last or not self._policy.no_sync)
        if layer == 0 and (last or not self._policy.no_sync):
            for stream in (POST_BACKWARD, ALL_REDUCE):
                self._streams.wait(self._streams.last(stream))

    def after_step(self) -> None:
        """Do nothing: the last backward reduces the gradients."""

    def clip(self) -> None:
        """Compute the norm of all gradients: the sum of the ranks' parts."""
        if self._policy.strategy != "no_shard":
            norm = Collective("all_reduce", len(self._shard.ranks), ITEMSIZE["float32"], dtype="float32")
            self.rank.wait(self.rank.call(self._shard, norm, "all-reduce of the gradients' norm"))

    def update(self, seconds: float) -> None:
        """Run the optimizer's step, after which gradients are freed."""
        self.rank.compute(seconds, "optimizer", "optimizer")
        last = self._streams.last()
        for held in self._held.values():
            if held.has_shard and last is not None:
                self.rank.give(GRADIENTS, self._own_nbytes(held), last)
            held.has_shard = False

    def _numel(self, unit: Unit) -> int:
        if len({tensor.dtype for tensor in unit.tensors}) > 1:
            raise ValueError(f"unit {unit.name} has parameters of several types; a flat one has only one")
        return flat_elements(unit, self._ranks, aligned=self._policy.use_orig_params)

    @property
    def _ranks(self) -> int:
        """The number of ranks with a shard each."""
        return 1 if self._policy.strategy == "no_shard" else len(self._shard.ranks)

    def _own_nbytes(self, held: Flat) -> int:
        return held.numel * ITEMSIZE[held.unit.dtype] // self._ranks

    def _wrapped(self, layer: int) -> bool:
        return layer in self._of and self._of[layer].unit.name != ROOT

    def _gathered_nbytes(self, held: Flat) -> int:
        return held.numel * ITEMSIZE[self._policy.param_dtype or held.unit.dtype]

    def _unshard(self, held: Flat) -> None:
        """Cast the shard, block the host if it is too far ahead, and gather."""
        streams, ranks, dtype = self._streams, self._ranks, self._policy.param_dtype or held.unit.dtype
        nbytes, casts = self._gathered_nbytes(held), dtype != held.unit.dtype
        if not held.whole and casts:
            name = f"cast of {held.unit.name}"
            streams.wait(streams.copy(self._own_nbytes(held) + nbytes / ranks, name, CAST), UNSHARD)
        if self._policy.limit_all_gathers and len(self._freed) >= RATE_LIMIT:
            self.rank.hold(self._freed.pop(0))
        if held.whole:
            return
        held.whole = True
        if ranks > 1:
            self.rank.take(GATHERED, nbytes)
            gather = Collective("all_gather", ranks, nbytes, dtype=dtype)
            streams.call(self._shard, gather, f"all-gather of {held.unit.name}", UNSHARD, ())

    def _free(self, held: Flat, *, frees: bool) -> None:
        held.prefetched = False
        if not frees or not held.whole:
            return
        held.whole = False
        last = self._streams.last()
        if last is not None:
            if self._ranks > 1:
                self.rank.give(GATHERED, self._gathered_nbytes(held), last)
            self._freed.append(last)

    def _pre_forward(self, held: Flat) -> None:
        if not held.prefetched:
            self._unshard(held)
        self._streams.wait(self._streams.last(UNSHARD))
        following = list(self._held.values())
        place = following.index(held) + 1
        if self._policy.forward_prefetch and place < len(following):
            self._prefetch(following[place])

    def _post_forward(self, held: Flat) -> None:
        held.place = len(self._passed)
        held.needed = True
        self._passed.append(held)
        self._free(held, frees=held.unit.name != ROOT and self._policy.strategy in FREES)

    def _pre_backward(self, held: Flat) -> None:
        if held.needed:
            if not held.prefetched:
                self._unshard(held)
            self._streams.wait(self._streams.last(UNSHARD))
        held.needed = False
        if self._policy.backward_prefetch == "pre":
            self._prefetch_before(held)

    def _post_backward(self, held: Flat, *, syncs: bool) -> None:
        sharded = self._policy.strategy != "no_shard"
        self._free(held, frees=sharded and (syncs or self._policy.strategy in FREES))
        if self._policy.backward_prefetch == "post":
            self._prefetch_before(held)
        if syncs:
            self._reduce(held)

    def _prefetch_before(self, held: Flat) -> None:
        if held.place:
            target = self._passed[held.place - 1]
            if target.needed:
                self._prefetch(target)

    def _prefetch(self, held: Flat) -> None:
        if not held.prefetched:
            self._unshard(held)
            held.prefetched = True

    def _join(self, held: Flat) -> None:
        """Concatenate the gradients of a unit's tensors, and add them to those that wait to be reduced."""
        made, name = held.made, f"gradients of {held.unit.name}"
        if self._policy.splits:
            self.rank.take(UNREDUCED, made)
            self.rank.give(UNREDUCED, made, self._streams.copy(2 * made, f"joined {name}"))
        if held.unreduced:
            self.rank.give(UNREDUCED, made, self._streams.copy(3 * made, f"added {name}"))
        held.made, held.unreduced = 0, made

    def _reduce(self, held: Flat) -> None:
        """Cast, divide, sum, divide again and add, all on the post-backward stream."""
        streams, unit, made = self._streams, held.unit, held.unreduced
        made_dtype = self._policy.param_dtype or unit.dtype
        dtype = self._policy.reduce_dtype or made_dtype
        casts, ranks = dtype != made_dtype, len(self._shard.ranks)
        nbytes, own = held.numel * ITEMSIZE[dtype], self._own_nbytes(held)
        part, name = nbytes // self._ranks, f"the gradients of {unit.name}"
        last = streams.wait(streams.last(), POST_BACKWARD)
        replicas = len(self._replicate.ranks) if self._policy.hybrid else 1
        before = predivision(ranks * replicas)
        self.rank.take(BUFFERS, nbytes if casts else 0)
        copied = (made + nbytes if casts else 0) + (2 * nbytes if before > 1 else 0)
        if copied:
            last = streams.copy(copied, f"cast and division of {name}", POST_BACKWARD)
        if casts:
            assert last is not None
            self.rank.give(UNREDUCED, made, last)
        self.rank.take(GRADIENTS, 0 if held.has_shard else own)
        self.rank.take(BUFFERS, part)
        kind = "reduce_scatter" if self._ranks > 1 else "all_reduce"
        if ranks > 1:
            both = Collective(kind, ranks, nbytes, dtype=dtype)
            last = streams.call(self._shard, both, f"{kind.replace('_', '-')} of {name}", POST_BACKWARD, ())
        else:
            last = streams.copy(2 * nbytes, f"copy of {name}", POST_BACKWARD)
        self.rank.give(BUFFERS if casts else UNREDUCED, nbytes if casts else made, last)
        stream = POST_BACKWARD
        if replicas > 1:
            stream = ALL_REDUCE
            across = Collective("all_reduce", replicas, part, dtype=dtype)
            last = streams.call(self._replicate, across, f"all-reduce of {name}", stream, (last,))
        copied = (2 * part if ranks * replicas > before else 0) + (part + own if dtype != unit.dtype else 0)
        copied += 3 * own if held.has_shard else 0
        last = streams.copy(copied, f"shard of {name}", stream, (last,))
        self.rank.give(BUFFERS, part, last)
        held.has_shard, held.unreduced = True, 0
