"""A micro-batch's operations in one branch of a layer on one rank: products, and exchanges around them.

A branch is a norm, products cut by columns, the part between (attention proper, an activation function), a
product cut by rows, and the residual sum. Backward does the work of each product twice, once
for the gradient of its input, once for that of its weight.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ringside.sim.collective import Collective
from ringside.sim.compute.kernels import Gemm
from ringside.sim.compute.prices import StackOnGpu
from ringside.sim.compute.stacks import PerPass
from ringside.sim.training.layers import Exchange, Kernels, Pass
from ringside.sim.training.tensor.cut import Product, TensorParallel

DTYPES = {2: "bfloat16", 4: "float32"}


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Times on a rank: ``tokens`` of ``width`` in a micro-batch, as a GPU computes them."""

    computing: StackOnGpu
    parallel: TensorParallel
    tokens: int
    width: int

    def product(self, product: Product, *, tokens: int | None = None, count: int = 1) -> float:
        """Return the seconds of a product in forward; ``tokens`` are each of ``count`` products'."""
        rows = self.tokens if tokens is None else tokens
        return self.computing.seconds(Gemm(rows, product.outputs, product.inputs, count))

    def input_gradient(self, product: Product, *, tokens: int | None = None, count: int = 1) -> float:
        """Return the seconds of the gradient of a product's input."""
        rows = self.tokens if tokens is None else tokens
        return self.computing.seconds(Gemm(rows, product.inputs, product.outputs, count))

    def weight_gradient(self, product: Product, *, tokens: int | None = None, count: int = 1) -> float:
        """Return the seconds of the gradient of a product's weight, whose factors are already cast.

        Forward cast its input, and the input's gradient that of its output, each with its transpose in one
        kernel (``cast_transpose`` of TransformerEngine).
        """
        rows = self.tokens if tokens is None else tokens
        added = self.computing.stack.accumulates
        one = Gemm(product.outputs, product.inputs, rows, count, accumulates=added, casts=False)
        return self.computing.seconds(one)

    def gradients(self, product: Product) -> float:
        """Return the seconds of both gradients."""
        return self.input_gradient(product) + self.weight_gradient(product)

    @property
    def norm(self) -> PerPass:
        """Seconds of a norm, in backward with the sum of the branch's gradients."""
        stack = self.computing.stack
        return PerPass(*(
            self.computing.streamed_s(self._between, nbytes, launches / 2)
            for nbytes, launches in zip(stack.norm, stack.launches, strict=True)
        ))  # fmt: skip

    @property
    def residual(self) -> PerPass:
        """Seconds of the sum with what went around a branch; its launches count among the norm's."""
        return PerPass(*(
            self.computing.streamed_s(self._between, nbytes, 0) for nbytes in self.computing.stack.residual
        ))  # fmt: skip

    @property
    def _between(self) -> float:
        """Elements between products on this rank."""
        spread = self.parallel.degree if self.parallel.sequence else 1
        return self.tokens * self.width / spread

    def hidden(self, products: Sequence[Product], *, gradient: bool = False) -> float:
        """Return the seconds of products, or their inputs' gradients, that pull or push tokens in pieces.

        The first piece is waited for; the others are copied beside the products of earlier ones.
        """
        pull, degree = self.parallel.pull, self.parallel.degree
        one_s = self.input_gradient if gradient else self.product
        if pull is None or degree == 1:
            return sum(map(one_s, products))
        seconds = sum(
            one_s(one) * pull.lost(self.tokens, one.inputs if gradient else one.outputs, degree)
            for one in products
        )
        piece = self._nbytes / degree / pull.bytes_per_s
        return max(seconds, (degree - 1) * piece) + piece + 2 * pull.barrier_s

    def exchange(self, kind: str, *, overlaps: bool = False) -> Pass:
        """Exchange the tokens among tensor-parallel ranks; do nothing on a single rank."""
        if self.parallel.degree == 1:
            return ()
        return (exchange(self.parallel.degree, kind, self._nbytes, self._dtype, overlaps=overlaps),)

    def gather(self, *, overlaps: bool = False) -> Pass:
        """Gather all tokens on each rank, if the sequence is cut and products do not pull."""
        if self.parallel.pull or not self.parallel.sequence:
            return ()
        return self.exchange("all_gather", overlaps=overlaps)

    def reduce(self, *, overlaps: bool = False) -> Pass:
        """Sum the ranks' parts of the tokens, unless a product pushes them itself."""
        if self.parallel.pull:
            return ()
        kind = "reduce_scatter" if self.parallel.sequence else "all_reduce"
        return self.exchange(kind, overlaps=overlaps)

    @property
    def _dtype(self) -> str:
        return DTYPES[self.computing.itemsize]

    @property
    def _nbytes(self) -> int:
        return self.tokens * self.width * self.computing.itemsize


def exchange(degree: int, kind: str, nbytes: int, dtype: str, *, overlaps: bool = False) -> Exchange:
    """Return a collective among tensor-parallel ranks."""
    return Exchange(("tensor",), Collective(kind, degree, nbytes, dtype=dtype), overlaps)


@dataclass(frozen=True, slots=True)
class Columns:
    """A norm and the products cut by columns after it: the start of a branch."""

    costs: PassCosts
    products: tuple[Product, ...]

    @property
    def weights_s(self) -> float:
        """Seconds of the gradients of the products' weights."""
        return sum(map(self.costs.weight_gradient, self.products))

    @property
    def forward(self) -> Pass:
        """Return the norm, the gather of all tokens, the products."""
        return (
            Kernels(self.costs.norm.forward),
            *self.costs.gather(),
            Kernels(self.costs.hidden(self.products)),
        )

    @property
    def backward(self) -> Pass:
        """Return gradients of inputs, whose sum is exchanged, and of weights; then the norm's."""
        costs, norm = self.costs, Kernels(self.costs.norm.backward)
        if costs.parallel.style == "megatron" and not costs.parallel.pull:
            return (
                *costs.gather(overlaps=True),
                Kernels(sum(map(costs.input_gradient, self.products))),
                *costs.reduce(overlaps=True),
                Kernels(self.weights_s),
                norm,
            )
        if costs.parallel.sequence:
            return (
                Kernels(costs.hidden(self.products, gradient=True) + self.weights_s),
                *costs.reduce(),
                norm,
            )
        return (*self._apart(costs.gradients), norm)

    @property
    def input_gradient(self) -> Pass:
        """Return the part of backward that the previous layer waits for."""
        norm = Kernels(self.costs.norm.backward)
        if self.costs.parallel.style == "dtensor" and not self.costs.parallel.sequence:
            return (*self._apart(self.costs.input_gradient), norm)
        return (Kernels(self.costs.hidden(self.products, gradient=True)), *self.costs.reduce(), norm)

    def _apart(self, seconds: Callable[[Product], float]) -> Pass:
        """Return the products' gradients, those of the inputs summed separately, the last product's first.

        The first sum overlaps with the next product; then both are waited for, to be added.
        """
        return tuple(
            part
            for number, product in enumerate(reversed(self.products))
            for part in (
                Kernels(seconds(product)),
                *self.costs.reduce(overlaps=number == 0 and len(self.products) > 1),
            )
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """Columns, the part between forward and backward, the product cut by rows, the residual sum."""

    columns: Columns
    core: Pass
    core_backward: Pass
    row: Product

    @property
    def forward(self) -> Pass:
        """Return the forward pass."""
        costs = self.columns.costs
        row = costs.hidden((self.row,))
        return merged(
            [
                *self.before_row,
                Kernels(row),
                *costs.reduce(),
                Kernels(costs.residual.forward),
            ]
        )

    @property
    def before_row(self) -> Pass:
        """Return the part of forward that makes what backward needs of the branch."""
        return merged([*self.columns.forward, *self.core])

    @property
    def backward(self) -> Pass:
        """Return backward, with gradients of the weights."""
        costs = self.columns.costs
        return merged(
            [
                Kernels(costs.residual.backward),
                *costs.gather(),
                Kernels(costs.hidden((self.row,), gradient=True) + costs.weight_gradient(self.row)),
                *self.core_backward,
                *self.columns.backward,
            ]
        )

    @property
    def input_gradient(self) -> Pass:
        """Return backward without gradients of the weights."""
        costs = self.columns.costs
        return merged(
            [
                Kernels(costs.residual.backward),
                *costs.gather(),
                Kernels(costs.hidden((self.row,), gradient=True)),
                *self.core_backward,
                *self.columns.input_gradient,
            ]
        )

    @property
    def arrival(self) -> list[tuple[tuple[str, ...], float]]:
        """Return the products' parameters in the order of their gradients in backward, with its seconds."""
        costs = self.columns.costs
        core = sum(part.seconds for part in self.core_backward if isinstance(part, Kernels))
        first = costs.residual.backward + costs.gradients(self.row)
        columns = [(one.arrival, costs.gradients(one)) for one in reversed(self.columns.products)]
        (names, seconds), *others = columns
        return [(self.row.arrival, first), (names, core + seconds), *others]

    @property
    def weight_gradient(self) -> Pass:
        """Return the rest of backward; Megatron gathers the columns' input again."""
        costs = self.columns.costs
        again = costs.gather(overlaps=True) if costs.parallel.style == "megatron" else ()
        return merged([*again, Kernels(costs.weight_gradient(self.row)), Kernels(self.columns.weights_s)])


def merged(parts: Iterable[Kernels | Exchange]) -> Pass:
    """Merge consecutive kernels; an overlapping exchange hides only behind the next product."""
    works: list[Kernels | Exchange] = []
    for part in parts:
        hides = len(works) > 1 and isinstance(works[-2], Exchange) and works[-2].overlaps
        if isinstance(part, Kernels) and works and isinstance(works[-1], Kernels) and not hides:
            works[-1] = Kernels(works[-1].seconds + part.seconds)
        else:
            works.append(part)
    return tuple(works)
