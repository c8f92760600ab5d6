"""Context parallelism: attention proper among ranks that have some tokens of every sequence.

Keys and values go around a ring (Liu et al., arXiv:2310.01889) or are gathered (Llama team, arXiv:2407.21783,
section 3.3.2), or all-to-alls give each rank all tokens of some heads (Ulysses, Jacobs et al.,
arXiv:2309.14509). Masks are causal. If a sequence is cut into consecutive pieces, a rank's blocks of scores
grow with its position. If it is cut into twice as many pieces as ranks and each rank has the n-th and the
n-th from the end, the blocks are equal ("zigzag" in github.com/zhuzilin/ring-flash-attention). Steps, their
order and types are torch's (torch.distributed.tensor.experimental, 2.13).
"""

from dataclasses import dataclass

from ringside.sim.collective import Collective
from ringside.sim.training.layers import Exchange, Kernels, Pass
from ringside.sim.workload.devices import Roofline

METHODS = ("ring", "zigzag", "all-gather", "ulysses")
"""A ring over consecutive pieces, a balanced ring, a balanced gather, and all-to-alls by heads."""

BALANCED = ("zigzag", "all-gather")
"""Methods that cut a sequence into two pieces per rank."""

UNMASKED = 0.863
"""Forward seconds per score without a mask (all blocks but a rank's own) over those with a causal one, as
measured on 8 A100 with a naive ring (`ringside.validation.published.training.ring_attention`)."""

_FLOAT32 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParallel:
    """Context parallelism among ``degree`` ranks by one of `METHODS`."""

    degree: int = 1
    method: str = "zigzag"

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise ValueError(f"context parallelism among {self.degree} ranks; write 1 or more")
        if self.method not in METHODS:
            raise ValueError(
                f"unknown context-parallel method {self.method!r}; write one of {', '.join(METHODS)}"
            )

    @property
    def pieces(self) -> int:
        """Number of pieces of equal length that a sequence is cut into."""
        return self.degree * (2 if self.method in BALANCED and self.degree > 1 else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention proper of a micro-batch on the busiest context-parallel rank.

    ``forward_s`` and ``backward_s`` are times of one rank with all tokens and this rank's heads. ``query``
    and ``key_value`` are the elements of this rank's queries, and of its keys.
    """

    context: ContextParallel
    roofline: Roofline
    dtype: str
    forward_s: float
    backward_s: float
    query: int
    key_value: int

    @property
    def forward(self) -> Pass:
        """Return blocks of scores, each beside the exchange that brings the next block's keys and values."""
        ranks = self.context.degree
        if ranks == 1:
            return (Kernels(self.forward_s),)
        if self.context.method == "ulysses":
            inputs = (self.query, self.key_value, self.key_value)
            return (*self._turned(inputs), Kernels(self.forward_s / ranks), *self._turned((self.query,)))
        parts: list[Kernels | Exchange] = []
        for step in range(ranks):
            parts += self._keys_and_values(step)
            block = self.forward_s * self._share(step)
            parts.append(Kernels(UNMASKED * block + self._merge_s if step else block))
        return tuple(parts)

    @property
    def backward(self) -> Pass:
        """Return the same with gradients; those of keys and values follow a step behind, in float32."""
        ranks = self.context.degree
        if ranks == 1:
            return (Kernels(self.backward_s),)
        if self.context.method == "ulysses":
            inputs = (self.query, self.key_value, self.key_value)
            return (*self._turned((self.query,)), Kernels(self.backward_s / ranks), *self._turned(inputs))
        gradients = Collective("sendrecv", ranks, 2 * self.key_value * _FLOAT32, dtype="float32")
        parts: list[Kernels | Exchange] = []
        for step in range(ranks):
            parts += self._keys_and_values(step)
            parts.append(Kernels(self.backward_s * self._share(step) + self._add_s))
            parts.append(Exchange(("context",), gradients, overlaps=step < ranks - 1))
        return tuple(parts)

    @property
    def buffers_nbytes(self) -> int:
        """Return the maximum bytes besides inputs and outputs: others' keys and values, float32 sums."""
        ranks, itemsize = self.context.degree, self.roofline.itemsize
        if ranks == 1:
            return 0
        if self.context.method == "ulysses":
            return 2 * (self.query + self.key_value) * itemsize
        others = ranks if self.context.method == "all-gather" else 2
        sums = self.query + 2 * 2 * self.key_value
        return others * 2 * self.key_value * itemsize + sums * _FLOAT32

    def _share(self, step: int) -> float:
        """Return a step's share of all scores: half a block of the rank's own, else a whole one or half."""
        half = 1 / self.context.degree**2
        return half if step == 0 or self.context.method in BALANCED else 2 * half

    def _keys_and_values(self, step: int) -> Pass:
        """Exchange others' keys and values: all of them once, or the next ones with each step."""
        ranks = self.context.degree
        nbytes = 2 * self.key_value * self.roofline.itemsize
        if self.context.method == "all-gather":
            exchange = Collective("all_gather", ranks, ranks * nbytes, dtype=self.dtype)
            asks = step == 0
        else:
            exchange = Collective("sendrecv", ranks, nbytes, dtype=self.dtype)
            asks = step < ranks - 1
        return (Exchange(("context",), exchange, overlaps=True),) if asks else ()

    @property
    def _merge_s(self) -> float:
        """Return the seconds that merge a step's output: out - sigmoid(...) (out - new), in float32.

        One kernel each for the cast, the difference, the product and the sum.
        """
        kernels = (self.roofline.itemsize + _FLOAT32, 3 * _FLOAT32, 2 * _FLOAT32, 3 * _FLOAT32)
        return self.query * sum(kernels) / self.roofline.bytes_per_s

    @property
    def _add_s(self) -> float:
        """Return the seconds that add a step's gradients to those in float32."""
        elements = self.query + 2 * self.key_value
        return elements * (self.roofline.itemsize + 2 * _FLOAT32) / self.roofline.bytes_per_s

    def _turned(self, tensors: tuple[int, ...]) -> Pass:
        """Exchange all heads of some tokens for all tokens of some heads, one all-to-all per tensor."""
        ranks, itemsize = self.context.degree, self.roofline.itemsize
        sizes = [elements * itemsize for elements in tensors]
        exchanges = [Collective("all_to_all", ranks, nbytes, dtype=self.dtype) for nbytes in sizes]
        return tuple(Exchange(("context",), one) for one in exchanges)
