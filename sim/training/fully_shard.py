"""FSDP2's part in a stage: the times at which a unit is gathered, freed and reduced.

The order is that of PyTorch 2.13's hooks (torch/distributed/fsdp/_fully_shard/_fsdp_state.py): the root comes
before all others in forward and, once its outputs have gradients, in backward. A unit is reduced when the
gradients of its inputs are made. A unit whose inputs need none, such as the tokens of a language model, has
no such hook, and is reduced at the very end.
"""

from collections.abc import Sequence

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.training.fsdp_collectives import Gathers, Held, Reductions
from ringside.sim.training.fsdp_policy import COPIES, OPTIMIZER, PARAMETERS, ROOT, FullyShardPolicy, units
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.memory.optimizers import Optimizer
from ringside.sim.training.sharing import Apart
from ringside.sim.training.stage import RankList, Streams


class FullyShard:
    """A `Sharing` of parameters that ``fully_shard`` shards; see `FullyShardPolicy`.

    ``inputs_need_gradient`` says that the stage is not the first, so gradients go on to the stage before. A
    sharing that ``defers`` belongs to a pipeline: parameters stay whole from `unshard` to `reshard`, and
    gradients unreduced until `reduce`.
    """

    def __init__(
        self,
        rank: RankList,
        layers: Sequence[RankLayer],
        policy: FullyShardPolicy,
        *,
        inputs_need_gradient: bool = False,
        defers: bool = False,
    ) -> None:
        self.rank = rank
        self._layers = layers
        self._policy = policy
        self._inputs_need_gradient = inputs_need_gradient
        self._defers = defers
        along = rank.communicators.along
        self._shard = along(rank.rank, *policy.shard)
        streams = Streams(rank, policy.memory_bandwidth)
        self._gathers = Gathers(streams, policy, self._shard)
        self._reductions = Reductions(streams, policy, self._shard, along(rank.rank, *policy.replicate))
        own_units = units(layers)
        policy.check(own_units, len(self._shard.ranks))
        self._held = {unit.name: Held(unit) for unit in own_units}
        self._of = {number: self._held[unit.name] for unit in own_units for number in unit.layers}
        self._passed: list[Held] = []
        """The units that have passed forward, in order."""
        self._asked: list[Held] = []
        """Units that `unshard` has begun to gather, until a pass waits for them."""

    def hold(self, optimizer: Optimizer) -> None:
        """Hold the rank's shards of parameters and of the optimizer's states for the whole step."""
        nbytes, gathered = self._shard_nbytes(), self._policy.param_dtype
        own = self._shard_nbytes(gathered) if self._policy.in_place else nbytes
        self.rank.take(PARAMETERS, own)
        self.rank.take(COPIES, nbytes if own != nbytes else 0)
        self.rank.take(OPTIMIZER, optimizer.states * nbytes)

    def before_forward(self, layer: int) -> None:
        """Wait for the layer's parameters, and begin to gather the units listed to prefetch."""
        self._await_asked()
        if layer == 0:
            self._gathers.begin()
            self._pre_forward(ROOT)
        if layer in self._of and self._name(layer) != ROOT:
            self._pre_forward(self._name(layer))

    def after_forward(self, layer: int) -> None:
        """Free the layer's parameters if the policy does so."""
        if layer in self._of and self._name(layer) != ROOT:
            self._post_forward(self._of[layer])
        if layer == len(self._layers) - 1:
            if ROOT in self._held:
                self._post_forward(self._held[ROOT])
            self._gathers.flush()

    def before_backward(self, layer: int) -> None:
        """Wait for the layer's parameters, and begin to gather the next unit of backward."""
        self._await_asked()
        if layer == len(self._layers) - 1:
            self._pre_backward(ROOT)
        if layer in self._of and self._name(layer) != ROOT:
            self._pre_backward(self._name(layer))

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Reduce the layer's gradients, or keep them for later."""
        if layer in self._of:
            self._reductions.make(self._of[layer], self._layers[layer])
        if layer in self._of and self._name(layer) != ROOT and self._has_hook(layer):
            self._post_backward(self._of[layer], last=last)
        if layer:
            return
        if ROOT in self._held and self._inputs_need_gradient:
            self._post_backward(self._held[ROOT], last=last)
        for held in self._held.values():
            if not held.over:
                self._post_backward(held, last=last)
        if not self._defers:
            self._finish()
        for held in self._held.values():
            held.over = False

    def after_step(self) -> None:
        """Reduce units that a pipeline has not reduced yet."""
        if any(held.accumulated for held in self._held.values()):
            self.reduce()

    def unshard(self) -> None:
        """Begin to gather all units; the next pass waits for them (UNSHARD of a pipeline)."""
        for held in self._held.values():
            self._gathers.ask(held, aside=True)
            self._asked.append(held)

    def reshard(self) -> None:
        """Free the gathered parameters of all units (RESHARD of a pipeline)."""
        self._await_asked()
        for held in self._held.values():
            self._gathers.give_back(held)

    def reduce(self) -> None:
        """Sum the gradients of all micro-batches, unit by unit from the root (REDUCE_GRAD of a pipeline)."""
        for held in self._held.values():
            self._gathers.give_back(held)
            self._reductions.reduce(held)
        self._finish()

    def clip(self) -> None:
        """Compute the norm of each gradient from its shards (``clip_grad_norm_``)."""
        tensors = [tensor for held in self._held.values() for tensor in held.unit.tensors]
        if not tensors:
            return
        nbytes = len(tensors) * ITEMSIZE[tensors[0].dtype]
        norms = Collective("all_reduce", len(self._shard.ranks), nbytes, dtype=tensors[0].dtype)
        self.rank.wait(self.rank.call(self._shard, norms, "all-reduce of the gradients' norms"))

    def update(self, seconds: float) -> None:
        """Run the optimizer's step, after which gradients are freed."""
        self.rank.compute(seconds, "optimizer", "optimizer")
        for held in self._held.values():
            self._reductions.drop(held)

    def _shard_nbytes(self, dtype: str | None = None) -> int:
        ranks = len(self._shard.ranks)
        return sum(held.unit.padded_nbytes(ranks, dtype) // ranks for held in self._held.values())

    def _name(self, layer: int) -> str:
        return self._of[layer].unit.name

    def _has_hook(self, layer: int) -> bool:
        """Return whether the layer's inputs need gradients."""
        return self._inputs_need_gradient or any(before.parameters for before in self._layers[:layer])

    def _await_asked(self) -> None:
        for held in self._asked:
            self._gathers.wait(held)
        self._asked.clear()

    def _pre_forward(self, name: str) -> None:
        if name in self._held:
            self._gathers.ask(self._held[name])
            self._gathers.wait(self._held[name], forward=True)
        self._prefetch(self._policy.forward_prefetch.get(name, ()))

    def _post_forward(self, held: Held) -> None:
        self._gathers.give_back(held, forward=True)
        held.passes.append(len(self._passed))
        self._passed.append(held)

    def _pre_backward(self, name: str) -> None:
        named = self._policy.backward_prefetch.get(name, ())
        if name in self._held:
            held = self._held[name]
            self._gathers.ask(held)
            self._gathers.wait(held)
            if not named and held.passes:
                place = held.passes.pop()
                if place:
                    self._gathers.ask(self._passed[place - 1])
        self._prefetch(named)

    def _prefetch(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self._held:
                self._gathers.ask(self._held[name])

    def _post_backward(self, held: Held, *, last: bool) -> None:
        held.over = True
        if not self._defers and (last or self._policy.reshard_after_backward):
            self._gathers.give_back(held)
        if not self._defers and (last or not self._policy.no_sync):
            self._reductions.reduce(held)
        else:
            self._reductions.accumulate(held)

    def _finish(self) -> None:
        """End a backward pass: the compute stream waits for its reductions, and the order is cleared."""
        self._reductions.finish()
        self._passed.clear()
        for held in self._held.values():
            self._gathers.drop(held)
            held.reduced = None
            held.passes.clear()


class ShardedApart(Apart):
    """Two `FullyShard` of the same layers, controlled by a pipeline as one."""

    def __init__(self, dense: FullyShard, experts: FullyShard) -> None:
        super().__init__(dense, experts)
        self._both = dense, experts

    def unshard(self) -> None:
        """Begin to gather all units."""
        for one in self._both:
            one.unshard()

    def reshard(self) -> None:
        """Free all units' gathered parameters."""
        for one in self._both:
            one.reshard()

    def reduce(self) -> None:
        """Sum the gradients of all micro-batches."""
        for one in self._both:
            one.reduce()

    def update(self, seconds: float) -> None:
        """Run the optimizer's step over both, after which gradients are freed."""
        dense, experts = self._both
        dense.update(seconds)
        experts.update(0.0)
