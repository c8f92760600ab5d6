"""A mixture of experts on one rank: tokens go to the ranks that have their experts, and come back.

`ringside.sim.training.tensor.dispatch` sends them. Experts are cut by tensor parallelism, by default like
other networks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from ringside.sim.compute.stacks import PerPass
from ringside.sim.training.layers import Kernels, Pass
from ringside.sim.training.tensor.activations import Routed
from ringside.sim.training.tensor.cut import Cut, Product
from ringside.sim.training.tensor.dispatch import Dispatch, ExpertParallel
from ringside.sim.training.tensor.passes import PassCosts, merged
from ringside.sim.workload.decoder_parts import Experts
from ringside.sim.workload.workload import Tensor


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
        if self._experts.hidden % self._dispatch.tensor:
            raise ValueError(
                f"{self.cut.decoder.name}: {self._experts.hidden} columns of an expert do not divide by "
                f"{self._dispatch.tensor} tensor-parallel ranks of the experts; write a divisor"
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
    def routed(self) -> Routed:
        """The rank's tokens, and what its experts and those of all tokens make of them."""
        own = self._dispatch
        return Routed(
            experts=self._experts.count, own=own.tokens, got=own.got,
            hidden=self._experts.hidden // own.tensor, shared=self._shared_hidden,
            sent=self.parallel.degree > 1,
        )  # fmt: skip

    @property
    def forward(self) -> Pass:
        """Return the norm, shared experts, dispatch, experts, combination, and the sum."""
        costs = self.costs
        return merged(
            [
                Kernels(costs.norm.forward),
                *self.shared_forward,
                Kernels(self._routed_s(costs.product) + self._dispatch.outer_ordering_s),
                *self._dispatch.dispatched,
                Kernels(
                    2 * self._dispatch.inner_ordering_s
                    + sum(map(self._forward_s, self._products))
                    + self.activation.forward
                ),
                *self._dispatch.exchanged("reduce_scatter"),
                Kernels(self._dispatch.outer_ordering_s + costs.residual.forward),
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
        router = self._routed_s(costs.weight_gradient)
        return merged([*again, Kernels(products + shared + router)])

    @property
    def arrival(self) -> list[tuple[tuple[str, ...], float]]:
        """Return the products' parameters in the order of their gradients in backward, with its seconds."""
        up, down = self._products
        ordering, inner = self._dispatch.outer_ordering_s, self._dispatch.inner_ordering_s
        arrival = [
            (("experts.down.weight",), self.costs.residual.backward + ordering + inner
             + self._gradients_s(down, weights=True)),
            ((f"experts.{up.name}.weight",), self.activation.backward
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
                Kernels(costs.residual.backward + self._dispatch.outer_ordering_s),
                *self._dispatch.exchanged("all_gather"),
                Kernels(2 * self._dispatch.inner_ordering_s + products + self.activation.backward),
                *self._dispatch.returned,
                Kernels(self._dispatch.outer_ordering_s + self._router_back_s(weights=weights)),
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
    def _dispatch(self) -> Dispatch:
        """The exchanges of tokens, which the ranks that share a layer have cut up."""
        tokens = self.costs.tokens // self.cut.spread
        return Dispatch(self.costs.computing, self.cut, self.parallel, self._experts, tokens)

    @property
    def _router(self) -> Product:
        return Product("router", self.cut.decoder.width, self._experts.count, "whole")

    @property
    def _products(self) -> tuple[Product, Product]:
        """One expert's products."""
        return self._network("", self._experts.hidden // self._dispatch.tensor)

    @property
    def _shared_hidden(self) -> int:
        """Width of the experts that all tokens pass, which are cut like the layer's other products."""
        return self._experts.shared_hidden // self.cut.parallel.degree

    @property
    def _shared(self) -> tuple[Product, ...]:
        return self._network("shared.", self._shared_hidden) if self._shared_hidden else ()

    def _network(self, prefix: str, hidden: int) -> tuple[Product, Product]:
        """Return the products of a network of this width on the rank."""
        width, gated = self.cut.decoder.width, self.cut.decoder.gated
        name, inputs = ("gate_up", 2) if gated else ("up", 1)
        return (
            Product(f"{prefix}{name}", width, inputs * hidden),
            Product(f"{prefix}down", hidden, width, "rows"),
        )

    @property
    def _each(self) -> tuple[int, int]:
        """Tokens of one of the rank's experts, and the number of experts."""
        count = self._experts.count // self.parallel.degree
        return ceil(self._dispatch.got / count), count

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

    def _routed_s(self, passed: Callable[..., float]) -> float:
        """Return the router's seconds in a pass of the rank's own tokens."""
        return passed(self._router, tokens=self._dispatch.tokens)

    def _router_back_s(self, *, weights: bool) -> float:
        seconds = self._routed_s(self.costs.input_gradient)
        return seconds + (self._routed_s(self.costs.weight_gradient) if weights else 0.0)

    @property
    def activation(self) -> PerPass:
        """Seconds of the experts' activation function."""
        return self._activated(self._dispatch.got * self._experts.hidden / self._dispatch.tensor)

    @property
    def _shared_activation(self) -> PerPass:
        return self._activated(self.costs.tokens * self._shared_hidden)

    def _activated(self, columns: float) -> PerPass:
        """Return the seconds of the activation function on this many elements."""
        computing = self.costs.computing
        kernels = computing.stack.gated if self.cut.decoder.gated else computing.stack.plain
        return PerPass(*(computing.streamed_s(columns, nbytes) for nbytes in kernels))

    @property
    def shared_forward(self) -> Pass:
        """Return forward of the experts that all tokens pass."""
        if not self._shared:
            return ()
        products = sum(map(self.costs.product, self._shared))
        work = Kernels(products + self._shared_activation.forward)
        return (*self.costs.gather(), work, *self.costs.reduce())
