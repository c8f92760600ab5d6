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
        itemsize = self.costs.roofline.itemsize
        scores = 4 * self._tokens * self._experts.count
        return scores + (self._got * hidden + self.costs.tokens * shared) * itemsize

    @property
    def forward(self) -> Pass:
        """Return the norm, shared experts, dispatch, experts, combination, and the sum."""
        costs = self.costs
        return merged(
            [
                Kernels(costs.between(2)),
                *self._shared_forward,
                Kernels(self._router_s + self._ordering_s(self._tokens)),
                *self._told,
                *self._sent,
                *self._probabilities,
                *self._tensor_exchange("all_gather"),
                Kernels(
                    self._inner_ordering_s + self._products_s + self._activation_s + self._inner_ordering_s
                ),
                *self._tensor_exchange("reduce_scatter"),
                *self._sent,
                Kernels(self._ordering_s(self._tokens) + costs.between(3)),
            ]
        )

    @property
    def backward(self) -> Pass:
        """Return all gradients; products for inputs and for weights each take as long as forward's."""
        return self._back(2)

    @property
    def input_gradient(self) -> Pass:
        """Return backward without gradients of the weights."""
        return self._back(1)

    @property
    def weight_gradient(self) -> Pass:
        """Return the rest of backward; Megatron gathers the shared experts' input again."""
        again = self.costs.gather(overlaps=True) if self._shared else ()
        return merged([*again, Kernels(self._products_s + self._shared_s + self._router_s)])

    @property
    def arrival(self) -> list[tuple[tuple[str, ...], float]]:
        """Return the products' parameters in the order of their gradients in backward, with its seconds."""
        up, down = self._products
        ordering = self._ordering_s(self._tokens)
        arrival = [
            (("experts.down.weight",), self.costs.between(3) + ordering + self._inner_ordering_s
             + 2 * self._expert_s(down)),
            (("experts.gate_up.weight",), 2 * self._activation_s + 2 * self._expert_s(up)
             + self._inner_ordering_s),
            (("router.correction", "router.weight"), ordering + 2 * self._router_s),
        ]  # fmt: skip
        for one in reversed(self._shared):
            between = 2 * self._shared_activation_s if one.cut == "columns" else 0.0
            arrival.append((one.arrival, between + 2 * self.costs.product(one)))
        return arrival

    def _back(self, directions: int) -> Pass:
        costs = self.costs
        again = costs.gather(overlaps=True) if self._shared and directions == 2 else ()
        return merged(
            [
                Kernels(costs.between(3) + self._ordering_s(self._tokens)),
                *self._sent,
                *self._tensor_exchange("all_gather"),
                Kernels(2 * self._inner_ordering_s + directions * self._products_s + 2 * self._activation_s),
                *self._tensor_exchange("reduce_scatter"),
                *self._probabilities,
                *self._sent,
                Kernels(self._ordering_s(self._tokens) + directions * self._router_s),
                *(costs.gather() if self._shared else ()),
                *again,
                Kernels(directions * self._shared_s + 2 * self._shared_activation_s),
                *(costs.reduce() if self._shared else ()),
                Kernels(costs.between(4)),
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
    def _products_s(self) -> float:
        """Seconds of the experts' products, in any of their directions."""
        return sum(map(self._expert_s, self._products))

    def _expert_s(self, one: Product) -> float:
        """Return the seconds of one product of all experts."""
        count, got = self._experts.count // self.parallel.degree, self._got
        return self.costs.roofline.seconds(
            2.0 * got * one.inputs * one.outputs,
            got * (one.inputs + one.outputs) + count * one.inputs * one.outputs,
        )

    @property
    def _activation_s(self) -> float:
        return self.costs.roofline.seconds(0.0, 3.0 * self._got * self._experts.hidden / self._tensor)

    @property
    def _router_s(self) -> float:
        one, tokens = self._router, self._tokens
        elements = tokens * (one.inputs + one.outputs) + one.inputs * one.outputs
        return self.costs.roofline.seconds(2.0 * tokens * one.inputs * one.outputs, elements)

    @property
    def _shared_s(self) -> float:
        return sum(map(self.costs.product, self._shared))

    @property
    def _shared_activation_s(self) -> float:
        hidden = self._experts.shared * self._experts.hidden / self._tensor
        return self.costs.roofline.seconds(0.0, 3.0 * self.costs.tokens * hidden)

    @property
    def _shared_forward(self) -> Pass:
        if not self._shared:
            return ()
        work = Kernels(self._shared_s + self._shared_activation_s)
        return (*self.costs.gather(), work, *self.costs.reduce())

    def _ordering_s(self, tokens: int) -> float:
        """Return the seconds to copy tokens into expert order, once per expert, or to sum them up."""
        copies = 1 + self._experts.active
        return self.costs.roofline.seconds(0.0, float(copies * tokens * self.cut.decoder.width))

    @property
    def _inner_ordering_s(self) -> float:
        """Return the seconds to sort tokens from several ranks by the rank's experts."""
        if self.parallel.degree * self._tensor == 1 or self._experts.count == self.parallel.degree:
            return 0.0
        return self.costs.roofline.seconds(0.0, 2.0 * self._got * self.cut.decoder.width)

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
        itemsize = self.costs.roofline.itemsize
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
        itemsize = self.costs.roofline.itemsize
        nbytes = self._got * self.cut.decoder.width * itemsize
        return (Exchange(("tensor",), Collective(kind, self._tensor, nbytes, dtype=DTYPES[itemsize])),)
