"""Kernels of training as plain data: products, attention, and those that only move memory."""

from typing import NamedTuple


class Gemm(NamedTuple):
    """Matrix products of m x k by k x n elements, ``products`` of them in one launch.

    ``accumulates`` says that results are added to float32 ones, as gradients of several micro-batches.
    ``casts`` says that factors of fewer than 16 bits are cast first, as part of the product.
    """

    m: int
    n: int
    k: int
    products: int = 1
    accumulates: bool = False
    casts: bool = True

    @property
    def flops(self) -> float:
        """FLOPs, a multiply-add as two."""
        return 2.0 * self.m * self.n * self.k * self.products

    @property
    def elements(self) -> float:
        """Elements read and written."""
        return float(self.products) * (self.m * self.k + self.k * self.n + self.m * self.n)


class Flash(NamedTuple):
    """Attention in one kernel that never writes its scores (Dao et al., arXiv:2205.14135).

    ``heads`` are those of all sequences together, each of ``sequence`` tokens. ``scored`` is the width of a
    head's query and of its value, together. Without ``causal`` masked scores are computed too. ``version`` is
    FlashAttention's; 3 stands for cuDNN's and TransformerEngine's kernels too.
    """

    heads: int
    sequence: int
    scored: int
    causal: bool = True
    backward: bool = False
    version: int = 3

    @property
    def flops(self) -> float:
        """FLOPs of forward."""
        square = 2.0 * self.heads * self.sequence**2 * self.scored
        return square / 2 if self.causal else square

    @property
    def elements(self) -> float:
        """Elements of queries, keys, values and outputs, each read or written once."""
        return 2.0 * self.heads * self.sequence * self.scored


class Scores(NamedTuple):
    """The batched products that write attention's scores and read them again, on ``heads`` heads.

    They compute masked scores too. Fields are those of `Flash`.
    """

    heads: int
    sequence: int
    scored: int
    backward: bool = False

    @property
    def flops(self) -> float:
        """FLOPs; backward computes two gradients of each product."""
        return 2.0 * self.heads * self.sequence**2 * self.scored * (2 if self.backward else 1)

    @property
    def elements(self) -> float:
        """Scores written and read."""
        return 2.0 * self.heads * self.sequence**2 * (2 if self.backward else 1)


class Streaming(NamedTuple):
    """``launches`` kernels that together read and write ``nbytes`` bytes."""

    nbytes: float
    launches: float = 1.0


Kernel = Gemm | Flash | Scores | Streaming
