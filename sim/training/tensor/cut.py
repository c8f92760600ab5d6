"""How tensor and context parallelism cut a decoder, and one rank's part of it.

Products that read a layer's input are cut by columns, and a rank keeps their outputs; products that write its
output are cut by rows, and all ranks sum these (Shoeybi et al., arXiv:1909.08053). Embedding and output
product are cut along the vocabulary, with sequence parallelism norms and sums along the tokens (Korthikanti
et al., arXiv:2205.05198).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ringside.sim.training.tensor.context import ContextParallel
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.workload import Tensor

STYLES = ("megatron", "dtensor")

TILE = 128, 256
"""Rows and columns of a product that a multiprocessor computes at once: cuBLAS's usual largest tile
(NVIDIA, Matrix Multiplication Background User's Guide, section 3)."""


@dataclass(frozen=True, slots=True)
class Pull:
    """Reads of other ranks' memory during compute, as in asynchronous tensor parallelism.

    A copy runs at ``bytes_per_s``; ranks meet before and after, ``barrier_s`` each time. Products are
    computed in pieces, each in waves of `TILE` on the ``multiprocessors``: each piece loses the idle part of
    its last wave. If the number of multiprocessors is unknown, no loss is assumed.
    """

    bytes_per_s: float
    barrier_s: float = 5e-6
    multiprocessors: int | None = None

    def lost(self, rows: int, outputs: int, pieces: int) -> float:
        """Return the factor by which a product of ``rows`` rows takes longer in pieces."""
        if self.multiprocessors is None:
            return 1.0
        whole, piece = (self._waves(count, outputs) for count in (rows, -(-rows // pieces)))
        return pieces * piece / whole

    def _waves(self, rows: int, outputs: int) -> int:
        tiles = -(-rows // TILE[0]) * -(-outputs // TILE[1])
        return -(-tiles // (self.multiprocessors or 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParallel:
    """Tensor parallelism among ``degree`` ranks.

    ``style`` is ``megatron``, which fuses products of one input and computes weights' gradients while those
    of inputs are exchanged, or ``dtensor``, torch's, with separate products. ``sequence`` adds sequence
    parallelism, for which Megatron gathers inputs again in backward and DTensor keeps them. With ``pull``
    gathers and scatters are hidden behind the products, as by TransformerEngine's user buffers and by torch.
    ``gathers_logits`` says that the loss needs the whole vocabulary on each rank, as DTensor's by default.
    """

    degree: int = 1
    style: str = "megatron"
    sequence: bool = False
    pull: Pull | None = None
    gathers_logits: bool = False

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise ValueError(f"tensor parallelism among {self.degree} ranks; write 1 or more")
        if self.style not in STYLES:
            raise ValueError(f"unknown tensor-parallel style {self.style!r}; write {' or '.join(STYLES)}")
        if self.pull and not self.sequence:
            raise ValueError("asynchronous tensor parallelism needs sequence parallelism")


class Product(NamedTuple):
    """A matrix product on one rank; ``cut`` is ``columns`` or ``rows``, or ``whole`` if it is replicated."""

    name: str
    inputs: int
    outputs: int
    cut: str = "columns"

    def parameters(self, dtype: str, *, bias: bool, by_input: bool = False) -> tuple[Tensor, ...]:
        """Return the weight and, if there is one, the bias, which is whole if the weight is cut by rows.

        A weight has a row for each output, or ``by_input`` for each input, as transformers' ``Conv1D``.
        """
        rows = self.inputs if by_input else self.outputs
        weight = Tensor(f"{self.name}.weight", self.inputs * self.outputs, dtype, rows=rows)
        return (weight, Tensor(f"{self.name}.bias", self.outputs, dtype)) if bias else (weight,)

    @property
    def arrival(self) -> tuple[str, ...]:
        """Names of its tensors in the order in which autograd finishes their gradients."""
        return f"{self.name}.bias", f"{self.name}.weight"


@dataclass(frozen=True, slots=True)
class Cut:
    """One rank's part of a decoder; raises ValueError for sizes that do not divide."""

    decoder: Decoder
    parallel: TensorParallel
    context: ContextParallel = field(default_factory=ContextParallel)

    def __post_init__(self) -> None:
        degree, decoder, groups = self.parallel.degree, self.decoder, self.decoder.key_value_heads
        self._divides("heads", decoder.heads)
        if groups % degree and degree % groups:
            fitting = _list(n for n in range(1, decoder.heads + 1) if not (groups % n and n % groups))
            raise ValueError(
                f"{decoder.name}: {groups} key-value heads neither divide by {degree} tensor-parallel "
                f"ranks nor divide these; write one of {fitting}"
            )
        self._divides("columns of its feed-forward network", decoder.hidden)
        if decoder.experts:
            self._divides("columns of the experts that all tokens pass", decoder.experts.shared_hidden)
        self._check_context()
        if self.parallel.sequence:
            self._divides("tokens of a sequence", decoder.sequence // self.context.degree)
        if self.parallel.style == "dtensor":
            self._divides(
                "entries of its vocabulary", decoder.vocabulary,
                or_else=", or leave `async_tp` out: Megatron's tensor parallelism pads the vocabulary",
            )  # fmt: skip

    def _check_context(self) -> None:
        """Raise ValueError for tokens, or heads, that do not divide by the context-parallel ranks."""
        name, degree, pieces = self.decoder.name, self.context.degree, self.context.pieces
        if degree > 1 and self.decoder.latent:
            raise ValueError(
                f"{name}: context parallelism of latent attention is not modelled; leave `cp` out"
            )
        if self.decoder.sequence % pieces:
            raise ValueError(
                f"{name}: a sequence of {self.decoder.sequence} tokens does not divide into {pieces} pieces "
                f"for {degree} context-parallel ranks; write `seq` "
                f"{-(-self.decoder.sequence // pieces) * pieces}"
            )
        heads = self._groups
        if self.context.method == "ulysses" and heads % degree:
            raise ValueError(
                f"{name}: {heads} key-value heads of a rank do not divide by {degree} context-parallel "
                "ranks, as ulysses requires; write one of "
                f"{_list(n for n in range(1, heads + 1) if heads % n == 0)}, or another `cp_method`"
            )

    def tokens(self, batch: int) -> int:
        """Return the rank's number of tokens of ``batch`` sequences."""
        return batch * self.decoder.sequence // self.context.degree

    def _divides(self, what: str, count: int, *, or_else: str = "") -> None:
        degree, heads = self.parallel.degree, self.decoder.heads
        if count % degree:
            fitting = _list(n for n in range(1, heads + 1) if count % n == 0 and heads % n == 0)
            raise ValueError(
                f"{self.decoder.name}: {count} {what} do not divide by {degree} tensor-parallel ranks; "
                f"write one of {fitting}{or_else}"
            )

    @property
    def query(self) -> int:
        """Width of the queries."""
        return self.decoder.query // self.parallel.degree

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self.decoder.heads // self.parallel.degree

    @property
    def key_value(self) -> int:
        """Width of the keys, and of the values; with more ranks than key-value heads these are copied."""
        return self._groups * self.decoder.head_width

    @property
    def _groups(self) -> int:
        """Number of key-value heads."""
        return max(1, self.decoder.key_value_heads // self.parallel.degree)

    @property
    def hidden(self) -> int:
        """Width of the feed-forward network."""
        return self.decoder.hidden // self.parallel.degree

    @property
    def vocabulary(self) -> int:
        """Entries of the vocabulary; Megatron pads it to a multiple of 128 a rank where it cuts it."""
        degree = self.parallel.degree
        if degree > 1 and self.parallel.style == "megatron":
            return -(-self.decoder.vocabulary // (128 * degree)) * 128
        return self.decoder.vocabulary // degree

    @property
    def spread(self) -> int:
        """Number of ranks among which the tokens between products are cut."""
        return self.parallel.degree if self.parallel.sequence else 1

    @property
    def scored(self) -> int:
        """Width of a query and of a value: the cost of making and using a score."""
        return self.decoder.scored // self.parallel.degree

    @property
    def attended(self) -> int:
        """Width of queries, keys, values and outputs: the elements that attention proper reads and writes."""
        latent = self.decoder.latent
        if latent:
            return 2 * self.heads * (latent.plain + latent.rotary + latent.value)
        return 2 * self.query + 2 * self.key_value

    @property
    def narrow(self) -> int:
        """Width of latent attention's narrow vectors, before and after their norms."""
        latent = self.decoder.latent
        return 2 * latent.norms + latent.rotary if latent else 0

    @property
    def attention(self) -> tuple[tuple[Product, ...], Product]:
        """Products before and after the attention proper; latent attention's first two are not cut."""
        width, latent = self.decoder.width, self.decoder.latent
        if latent:
            narrow, wide = latent.inputs(width), latent.widened(self.heads)
            return (
                Product("query_down", *narrow[0], "whole"),
                Product("query_up", *wide[0]),
                Product("key_value_down", *narrow[1], "whole"),
                Product("key_value_up", *wide[1]),
            ), Product("output", self.heads * latent.value, width, "rows")
        before: tuple[Product, ...] = (
            Product("query", width, self.query),
            Product("key", width, self.key_value),
            Product("value", width, self.key_value),
        )
        if self.parallel.style == "megatron" or self.decoder.positions:
            before = (Product("query_key_value", width, self.query + 2 * self.key_value),)
        return before, Product("output", self.query, width, "rows")

    @property
    def feed_forward(self) -> tuple[tuple[Product, ...], Product]:
        """Products before and after the activation function."""
        width, hidden = self.decoder.width, self.hidden
        before: tuple[Product, ...] = (Product("up", width, hidden),)
        if self.decoder.gated:
            before = (Product("gate", width, hidden), Product("up", width, hidden))
            if self.parallel.style == "megatron":
                before = (Product("gate_up", width, 2 * hidden),)
        return before, Product("down", hidden, width, "rows")

    def norm(self, name: str, dtype: str) -> tuple[Tensor, ...]:
        """Return a norm's parameters, which every rank has."""
        return self._norm(name, self.decoder.width, dtype)

    def inner_norms(self, dtype: str) -> tuple[Tensor, ...]:
        """Return parameters of attention's own norms, which every rank has."""
        decoder, latent = self.decoder, self.decoder.latent
        if latent:
            widths = {"query_norm": latent.query_rank, "key_value_norm": latent.key_value_rank}
            return tuple(Tensor(f"{name}.weight", width, dtype) for name, width in widths.items())
        names = ("head_query_norm", "head_key_norm") if decoder.qk_norm else ()
        return tuple(one for name in names for one in self._norm(name, decoder.head_width, dtype))

    def _norm(self, name: str, width: int, dtype: str) -> tuple[Tensor, ...]:
        parts = ("weight", "bias")[: self.decoder.norm_vectors]
        return tuple(Tensor(f"{name}.{part}", width, dtype) for part in parts)


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
