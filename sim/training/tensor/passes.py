"""What a micro-batch does in one branch of a layer on one rank: products, and exchanges around them.

A branch is a norm, products cut by columns, what lies between (attention proper, an activation function), a
product cut by rows, and the sum with what went around it. Backward does the work of each product twice, once
for the gradient of its input, once for that of its weight, and all else twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringside.sim.collective import Collective
from ringside.sim.training.layers import Exchange, Pass, Work
from ringside.sim.training.tensor.cut import Product, TensorParallel
from ringside.sim.workload.devices import Roofline

DTYPES = {2: "bfloat16", 4: "float32"}


@dataclass(frozen=True, slots=True)
class Costs:
    """How long things take on a rank: ``tokens`` of ``width`` in a micro-batch, at ``roofline``'s pace."""

    roofline: Roofline
    parallel: TensorParallel
    tokens: int
    width: int

    def product(self, product: Product) -> float:
        """Seconds of a product, in any of its three directions."""
        inputs, outputs = product.inputs, product.outputs
        elements = self.tokens * (inputs + outputs) + inputs * outputs
        return self.roofline.seconds(2.0 * self.tokens * inputs * outputs, elements)

    def between(self, tensors: int) -> float:
        """Seconds of a kernel between products that reads and writes so many tensors of the tokens."""
        spread = self.parallel.degree if self.parallel.sequence else 1
        return self.roofline.seconds(0.0, tensors * self.tokens * self.width / spread)

    def hidden(self, products: Sequence[Product], *, gradient: bool = False) -> float:
        """Seconds of products, or their inputs' gradients, that pull or push tokens piece by piece meanwhile.

        The first piece is waited for; the others are copied beside the products of those before.
        """
        pull, degree = self.parallel.pull, self.parallel.degree
        if pull is None or degree == 1:
            return sum(map(self.product, products))
        seconds = sum(
            self.product(one) * pull.lost(self.tokens, one.inputs if gradient else one.outputs, degree)
            for one in products
        )
        piece = self._nbytes / degree / pull.bytes_per_s
        return max(seconds, (degree - 1) * piece) + piece + 2 * pull.barrier_s

    def exchange(self, kind: str, *, overlaps: bool = False) -> Pass:
        """An exchange of the tokens among tensor-parallel ranks; nothing if there is only one."""
        if self.parallel.degree == 1:
            return ()
        return (exchange(self.parallel.degree, kind, self._nbytes, self._dtype, overlaps=overlaps),)

    def gather(self, *, overlaps: bool = False) -> Pass:
        """Have all tokens on each rank, where the sequence is cut and no product pulls them itself."""
        if self.parallel.pull or not self.parallel.sequence:
            return ()
        return self.exchange("all_gather", overlaps=overlaps)

    def reduce(self, *, overlaps: bool = False) -> Pass:
        """Add up what ranks have of the tokens, unless a product pushes it itself."""
        if self.parallel.pull:
            return ()
        kind = "reduce_scatter" if self.parallel.sequence else "all_reduce"
        return self.exchange(kind, overlaps=overlaps)

    @property
    def _dtype(self) -> str:
        return DTYPES[self.roofline.itemsize]

    @property
    def _nbytes(self) -> int:
        return self.tokens * self.width * self.roofline.itemsize


def exchange(degree: int, kind: str, nbytes: int, dtype: str, *, overlaps: bool = False) -> Exchange:
    """A collective among tensor-parallel ranks."""
    return Exchange(("tensor",), Collective(kind, degree, nbytes, dtype=dtype), overlaps)


@dataclass(frozen=True, slots=True)
class Columns:
    """A norm and the products cut by columns behind it: the way into a branch."""

    costs: Costs
    products: tuple[Product, ...]

    @property
    def seconds(self) -> float:
        """Time of the products."""
        return sum(map(self.costs.product, self.products))

    @property
    def forward(self) -> Pass:
        """The norm, all tokens, the products."""
        return (
            Work(self.costs.between(2)),
            *self.costs.gather(),
            Work(self.costs.hidden(self.products)),
        )

    @property
    def backward(self) -> Pass:
        """Gradients of inputs, whose sum is exchanged, and of weights; then the norm's."""
        costs, norm = self.costs, Work(self.costs.between(4))
        if costs.parallel.style == "megatron":
            return (
                *costs.gather(overlaps=True),
                Work(self.seconds),
                *costs.reduce(overlaps=True),
                Work(self.seconds),
                norm,
            )
        if costs.parallel.sequence:
            return (Work(costs.hidden(self.products, gradient=True) + self.seconds), *costs.reduce(), norm)
        return (*self._apart(2), norm)

    @property
    def input_gradient(self) -> Pass:
        """Of backward what the layer before waits for."""
        norm = Work(self.costs.between(4))
        if self.costs.parallel.style == "dtensor" and not self.costs.parallel.sequence:
            return (*self._apart(1), norm)
        return (Work(self.costs.hidden(self.products, gradient=True)), *self.costs.reduce(), norm)

    def _apart(self, directions: int) -> Pass:
        """Each product's gradient of the input summed by itself, the last product's first.

        The first sum is on its way while the next product works; then both are waited for, to be added.
        """
        return tuple(
            part
            for number, product in enumerate(reversed(self.products))
            for part in (
                Work(directions * self.costs.product(product)),
                *self.costs.reduce(overlaps=number == 0 and len(self.products) > 1),
            )
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """Columns, what lies between, forward and backward, the product cut by rows, the sum."""

    columns: Columns
    core: Pass
    core_backward: Pass
    row: Product

    @property
    def forward(self) -> Pass:
        """Forward."""
        costs = self.columns.costs
        row = costs.hidden((self.row,))
        return merged([*self.columns.forward, *self.core, Work(row), *costs.reduce(), Work(costs.between(3))])

    @property
    def backward(self) -> Pass:
        """Backward, with gradients of the weights."""
        costs = self.columns.costs
        return merged(
            [
                Work(costs.between(3)),
                *costs.gather(),
                Work(costs.hidden((self.row,), gradient=True) + costs.product(self.row)),
                *self.core_backward,
                *self.columns.backward,
            ]
        )

    @property
    def input_gradient(self) -> Pass:
        """Backward without gradients of the weights."""
        costs = self.columns.costs
        return merged(
            [
                Work(costs.between(3)),
                *costs.gather(),
                Work(costs.hidden((self.row,), gradient=True)),
                *self.core_backward,
                *self.columns.input_gradient,
            ]
        )

    @property
    def arrival(self) -> list[tuple[tuple[str, ...], float]]:
        """The parameters of products as backward finishes their gradients, each time with its seconds."""
        costs = self.columns.costs
        core = sum(part.seconds for part in self.core_backward if isinstance(part, Work))
        first = costs.between(3) + 2 * costs.product(self.row)
        columns = [(one.arrival, 2 * costs.product(one)) for one in reversed(self.columns.products)]
        (names, seconds), *others = columns
        return [(self.row.arrival, first), (names, core + seconds), *others]

    @property
    def weight_gradient(self) -> Pass:
        """The rest of it; Megatron gathers the columns' input anew."""
        costs = self.columns.costs
        again = costs.gather(overlaps=True) if costs.parallel.style == "megatron" else ()
        return merged([*again, Work(costs.product(self.row)), Work(self.columns.seconds)])


def merged(parts: Iterable[Work | Exchange]) -> Pass:
    """Works in a row as one; an exchange that overlaps is hidden behind the one product after it alone."""
    found: list[Work | Exchange] = []
    for part in parts:
        hides = len(found) > 1 and isinstance(found[-2], Exchange) and found[-2].overlaps
        if isinstance(part, Work) and found and isinstance(found[-1], Work) and not hides:
            found[-1] = Work(found[-1].seconds + part.seconds)
        else:
            found.append(part)
    return tuple(found)
