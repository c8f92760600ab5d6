"""A mixture of experts on one rank: tokens go to the ranks that have their experts, and come back.

As in Megatron-LM's all-to-all dispatcher (megatron/core/transformer/moe/token_dispatcher.py): ranks exchange
how many tokens go to each expert, and the host waits for these counts, which set the sizes of
the parts. Tokens are sorted by expert and sent, then their probabilities; the
results return the same way. Backward sends gradients in reverse. Experts are cut by tensor parallelism
like other networks, and their ranks gather each other's tokens for that.
"""

from dataclasses import dataclass
from math import ceil

from ringside.sim.collective import Collective
from ringside.sim.compute.stacks import PerPass
from ringside.sim.training.layers import Exchange, Kernels, Pass
from ringside.sim.training.tensor.cut import Cut, Product
from ringside.sim.training.tensor.passes import DTYPES, PassCosts, merged
from ringside.sim.workload.decoder import Experts
from ringside.sim.workload.workload import Tensor

HOST_SYNC_S = 20e-6
"""Seconds that a GPU idles while its host waits for counts and launches again.

A round figure: a copy to the host and the launch of a kernel take some 10 microseconds each.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertParallel:
    """Expert parallelism among ``degree`` ranks, each with the same number of a layer's experts.

    The simulated rank gets ``imbalance`` times the mean number of tokens. With a ``capacity`` factor
    each expert gets that many times the mean: missing tokens are padded, further ones are dropped, and
    ranks need not exchange counts.
    """

    degree: int = 1
    imbalance: float = 1.0
    capacity: float | None = None

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise ValueError(f"expert parallelism among {self.degree} ranks; write 1 or more")
        if not 1 <= self.imbalance <= self.degree:
            raise ValueError(
                f"the busiest of {self.degree} expert-parallel ranks has {self.imbalance:g} times the mean; "
                f"write 1 to {self.degree}"
            )
        if self.capacity is not None and not 0 < self.capacity < float("inf"):
            raise ValueError(f"a capacity of {self.capacity:g} times the even part; write for example 1.25")
        if self.capacity is not None and self.imbalance > 1:
            raise ValueError("a capacity balances the experts, so imbalance is 1; remove one of them")


@dataclass(frozen=True, slots=True)
class Mixture:
    """A layer's experts, as one branch of it (`ringside.sim.training.tensor.passes.Branch`)."""

    costs: PassCosts
    cut: Cut
    parallel: ExpertParallel

    def __post_init__(self) -> None:
        count, degree = self._experts.count, self.parallel.degree
        if count % degree:
            fitting = ", ".join(str(n) for n in range(1, count + 1) if count % n == 0)
            raise ValueError(
                f"{self.cut.decoder.name}: {count} experts do not divide by {degree} expert-parallel ranks; "
                f"write one of {fitting}"
            )

    def parameters(self, dtype: str) -> tuple[Tensor, ...]:
        """Return the parameters of every rank: the router, and the experts that all tokens pass."""
        bias = (Tensor("router.correction", self._experts.count, dtype),) if self._experts.biased else ()
        shared = (tensor for one in self._shared for tensor in one.parameters(dtype, bias=False))
        return (*self._router.parameters(dtype, bias=False), *bias, *shared)

    def experts(self, dtype: str) -> tuple[Tensor, ...]:
        """Return the rank's own experts, each product of all of them as one tensor.

        FSDP shards them by experts, or if these are too few by their outputs, as torchtitan does.
        """
        count = self._experts.count // self.parallel.degree
        return tuple(
            Tensor(
                f"experts.{one.name}.weight",
                count * one.inputs * one.outputs,
                dtype,
                rows=count * one.outputs,
            )
            for one in self._products
        )

    @property
    def kept_nbytes(self) -> int:
        """Bytes of activations: experts' scores, experts' inputs, and tensors inside the networks."""
        hidden = self.cut.decoder.width + 3 * self._experts.hidden // self._tensor
        shared = 3 * self._experts.shared * self._experts.hidden // self._tensor
        itemsize = self.costs.computing.itemsize
        scores = 4 * self._tokens * self._experts.count
        return scores + (self._got * hidden + self.costs.tokens * shared) * itemsize

    @property
    def forward(self) -> Pass:
        """Return the norm, shared experts, dispatch, experts, combination, and the sum."""
        costs = self.costs
        return merged(
            [
                Kernels(costs.norm.forward),
                *self._shared_forward,
                Kernels(costs.product(self._router, tokens=self._tokens) + self._ordering_s(self._tokens)),
                *self._told,
                *self._sent,
                *self._probabilities,
                *self._tensor_exchange("all_gather"),
                Kernels(
                    2 * self._inner_ordering_s
                    + sum(map(self._forward_s, self._products))
                    + self._activation.forward
                ),
                *self._tensor_exchange("reduce_scatter"),
                *self._sent,
                Kernels(self._ordering_s(self._tokens) + costs.residual.forward),
            ]
        )

    @property
    def backward(self) -> Pass:
        """Return all gradients."""
        return self._back(weights=True)

    @property
    def input_gradient(self) -> Pass:
        """Return backward without gradients of the weights."""
        return self._back(weights=False)

    @property
    def weight_gradient(self) -> Pass:
        """Return the rest of backward; Megatron gathers the shared experts' input again."""
        again = self.costs.gather(overlaps=True) if self._shared else ()
        costs = self.costs
        products = sum(map(self._weight_s, self._products))
        shared = sum(map(costs.weight_gradient, self._shared))
        router = costs.weight_gradient(self._router, tokens=self._tokens)
        return merged([*again, Kernels(products + shared + router)])

    @property
    def arrival(self) -> list[tuple[tuple[str, ...], float]]:
        """Return the products' parameters in the order of their gradients in backward, with its seconds."""
        up, down = self._products
        ordering, inner = self._ordering_s(self._tokens), self._inner_ordering_s
        arrival = [
            (("experts.down.weight",), self.costs.residual.backward + ordering + inner
             + self._gradients_s(down, weights=True)),
            (("experts.gate_up.weight",), self._activation.backward
             + self._gradients_s(up, weights=True) + inner),
            (("router.correction", "router.weight"), ordering + self._router_back_s(weights=True)),
        ]  # fmt: skip
        for one in reversed(self._shared):
            between = self._shared_activation.backward if one.cut == "columns" else 0.0
            arrival.append((one.arrival, between + self.costs.gradients(one)))
        return arrival

    def _back(self, *, weights: bool) -> Pass:
        costs = self.costs
        again = costs.gather(overlaps=True) if self._shared and weights else ()
        products = sum(self._gradients_s(one, weights=weights) for one in self._products)
        shared = sum(map(costs.gradients if weights else costs.input_gradient, self._shared))
        return merged(
            [
                Kernels(costs.residual.backward + self._ordering_s(self._tokens)),
                *self._sent,
                *self._tensor_exchange("all_gather"),
                Kernels(2 * self._inner_ordering_s + products + self._activation.backward),
                *self._tensor_exchange("reduce_scatter"),
                *self._probabilities,
                *self._sent,
                Kernels(self._ordering_s(self._tokens) + self._router_back_s(weights=weights)),
                *(costs.gather() if self._shared else ()),
                *again,
                Kernels(shared + self._shared_activation.backward),
                *(costs.reduce() if self._shared else ()),
                Kernels(costs.norm.backward),
            ]
        )

    @property
    def _experts(self) -> Experts:
        experts = self.cut.decoder.experts
        assert experts
        return experts

    @property
    def _tensor(self) -> int:
        return self.cut.parallel.degree

    @property
    def _tokens(self) -> int:
        """The rank's own tokens."""
        return self.costs.tokens // self.cut.spread

    @property
    def _routed(self) -> int:
        """Tokens that arrive at the rank, once for each of their experts, before tensor parallelism."""
        experts, capacity = self._experts, self.parallel.capacity
        even = self._tokens * experts.active
        if capacity is not None:
            return experts.count * ceil(even / experts.count * capacity)
        return ceil(even * self.parallel.imbalance)

    @property
    def _got(self) -> int:
        """Tokens that the rank's experts compute."""
        return self._routed * self.cut.spread

    @property
    def _router(self) -> Product:
        return Product("router", self.cut.decoder.width, self._experts.count, "whole")

    @property
    def _products(self) -> tuple[Product, Product]:
        """One expert's products."""
        width, hidden = self.cut.decoder.width, self._experts.hidden // self._tensor
        return Product("gate_up", width, 2 * hidden), Product("down", hidden, width, "rows")

    @property
    def _shared(self) -> tuple[Product, ...]:
        width, hidden = self.cut.decoder.width, self._experts.shared * self._experts.hidden // self._tensor
        if not hidden:
            return ()
        return Product("shared.gate_up", width, 2 * hidden), Product("shared.down", hidden, width, "rows")

    @property
    def _each(self) -> tuple[int, int]:
        """Tokens of one of the rank's experts, and the number of experts."""
        count = self._experts.count // self.parallel.degree
        return ceil(self._got / count), count

    def _forward_s(self, one: Product) -> float:
        """Return the seconds of one product of all experts."""
        tokens, count = self._each
        return self.costs.product(one, tokens=tokens, count=count)

    def _gradients_s(self, one: Product, *, weights: bool) -> float:
        """Return the seconds of the gradients of a product's inputs, and of its ``weights``."""
        tokens, count = self._each
        seconds = self.costs.input_gradient(one, tokens=tokens, count=count)
        return seconds + self._weight_s(one) if weights else seconds

    def _weight_s(self, one: Product) -> float:
        tokens, count = self._each
        return self.costs.weight_gradient(one, tokens=tokens, count=count)

    def _router_back_s(self, *, weights: bool) -> float:
        seconds = self.costs.input_gradient(self._router, tokens=self._tokens)
        return seconds + (self.costs.weight_gradient(self._router, tokens=self._tokens) if weights else 0.0)

    @property
    def _activation(self) -> PerPass:
        return self._activated(self._got * self._experts.hidden / self._tensor)

    @property
    def _shared_activation(self) -> PerPass:
        return self._activated(self.costs.tokens * self._experts.shared * self._experts.hidden / self._tensor)

    def _activated(self, columns: float) -> PerPass:
        """Return the seconds of the activation function on this many elements."""
        computing = self.costs.computing
        return PerPass(*(computing.streamed_s(columns, nbytes) for nbytes in computing.stack.gated))

    @property
    def _shared_forward(self) -> Pass:
        if not self._shared:
            return ()
        products = sum(map(self.costs.product, self._shared))
        work = Kernels(products + self._shared_activation.forward)
        return (*self.costs.gather(), work, *self.costs.reduce())

    def _ordering_s(self, tokens: int) -> float:
        """Return the seconds to copy tokens into expert order, once per expert, or to sum them up."""
        copies = 1 + self._experts.active
        return self.costs.computing.streamed_s(tokens * self.cut.decoder.width, 2.0 * copies)

    @property
    def _inner_ordering_s(self) -> float:
        """Return the seconds to sort tokens from several ranks by the rank's experts."""
        if self.parallel.degree * self._tensor == 1 or self._experts.count == self.parallel.degree:
            return 0.0
        return self.costs.computing.streamed_s(self._got * self.cut.decoder.width, 4.0)

    @property
    def _told(self) -> Pass:
        """Exchange the number of tokens per expert, for which the host waits."""
        ranks = self.parallel.degree * self._tensor
        if ranks == 1 or self.parallel.capacity is not None:
            return ()
        counts = Collective("all_gather", ranks, 8 * ranks * self._experts.count, dtype="int64")
        return Exchange(("tensor", "expert"), counts), Kernels(HOST_SYNC_S)

    @property
    def _sent(self) -> Pass:
        itemsize = self.costs.computing.itemsize
        return self._all_to_all(self._routed * self.cut.decoder.width * itemsize, DTYPES[itemsize])

    @property
    def _probabilities(self) -> Pass:
        return self._all_to_all(4 * self._routed, "float32")

    def _all_to_all(self, nbytes: int, dtype: str) -> Pass:
        if self.parallel.degree == 1:
            return ()
        return (Exchange(("expert",), Collective("all_to_all", self.parallel.degree, nbytes, dtype=dtype)),)

    def _tensor_exchange(self, kind: str) -> Pass:
        """Gather the tokens of all tensor-parallel ranks, or sum their results."""
        if self._tensor == 1:
            return ()
        itemsize = self.costs.computing.itemsize
        nbytes = self._got * self.cut.decoder.width * itemsize
        return (Exchange(("tensor",), Collective(kind, self._tensor, nbytes, dtype=DTYPES[itemsize])),)
