"""Attention of context-parallel ranks, each of which has some of every sequence's tokens.

Keys and values go around a ring (Liu et al., arXiv:2310.01889), are gathered (Llama team, arXiv:2407.21783,
section 3.3.2), or all three inputs change places so that each rank has all tokens of some heads (Ulysses,
Jacobs et al., arXiv:2309.14509). Masks are causal: the blocks that a rank makes of a sequence cut in a row
grow with its place, and those of one cut in twice as many pieces, of which each rank has the n-th and the
n-th from the end, are alike ("zigzag" in github.com/zhuzilin/ring-flash-attention). Steps, their order and
their types are those of torch.distributed.tensor.experimental (2.13).
"""

from dataclasses import dataclass

from ringside.sim.collective import Collective
from ringside.sim.training.layers import Exchange, Pass, Work
from ringside.sim.workload.devices import Roofline

METHODS = ("ring", "zigzag", "all-gather", "ulysses")
"""Around a ring with the sequence cut in a row, or balanced; gathered, balanced too; or by heads."""

BALANCED = ("zigzag", "all-gather")
"""Those that cut a sequence in twice as many pieces as there are ranks."""

UNMASKED = 0.887
"""Seconds of a score in forward without a mask, of which all blocks but a rank's own are, over those with a
causal one: what 8 A100 took for a naive ring (`ringside.validation.published.training.ring_attention`)."""

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
                f"{self.method!r} is no way of context parallelism; write one of {', '.join(METHODS)}"
            )

    @property
    def pieces(self) -> int:
        """Into how many pieces of one length a sequence is cut."""
        return self.degree * (2 if self.method in BALANCED and self.degree > 1 else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention proper of a micro-batch on the context-parallel rank that has most to do.

    ``forward_s`` and ``backward_s`` would take one rank that had all tokens, with the heads that this one
    has. ``query`` and ``key_value`` are elements of this rank's queries, and of its keys.
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
        """Blocks of scores, each beside the exchange that brings the next one's keys and values."""
        ranks = self.context.degree
        if ranks == 1:
            return (Work(self.forward_s),)
        if self.context.method == "ulysses":
            inputs = (self.query, self.key_value, self.key_value)
            return (*self._turned(inputs), Work(self.forward_s / ranks), *self._turned((self.query,)))
        parts: list[Work | Exchange] = []
        for step in range(ranks):
            parts += self._keys_and_values(step)
            block = self.forward_s * self._share(step)
            parts.append(Work(UNMASKED * block + self._merge_s if step else block))
        return tuple(parts)

    @property
    def backward(self) -> Pass:
        """The same with gradients, of which those of keys and values follow a step behind, in float32."""
        ranks = self.context.degree
        if ranks == 1:
            return (Work(self.backward_s),)
        if self.context.method == "ulysses":
            inputs = (self.query, self.key_value, self.key_value)
            return (*self._turned((self.query,)), Work(self.backward_s / ranks), *self._turned(inputs))
        gradients = Collective("sendrecv", ranks, 2 * self.key_value * _FLOAT32, dtype="float32")
        parts: list[Work | Exchange] = []
        for step in range(ranks):
            parts += self._keys_and_values(step)
            parts.append(Work(self.backward_s * self._share(step) + self._add_s))
            parts.append(Exchange(("context",), gradients, overlaps=step < ranks - 1))
        return tuple(parts)

    @property
    def buffers_nbytes(self) -> int:
        """Bytes beside inputs and outputs at most: others' keys and values, and sums in float32."""
        ranks, itemsize = self.context.degree, self.roofline.itemsize
        if ranks == 1:
            return 0
        if self.context.method == "ulysses":
            return 2 * (self.query + self.key_value) * itemsize
        others = ranks if self.context.method == "all-gather" else 2
        sums = self.query + 2 * 2 * self.key_value
        return others * 2 * self.key_value * itemsize + sums * _FLOAT32

    def _share(self, step: int) -> float:
        """Of all scores one step's: half a block of the rank's own, of others' a whole one, or half."""
        half = 1 / self.context.degree**2
        return half if step == 0 or self.context.method in BALANCED else 2 * half

    def _keys_and_values(self, step: int) -> Pass:
        """What brings those of others: once all of them, or with each step the next."""
        ranks = self.context.degree
        nbytes = 2 * self.key_value * self.roofline.itemsize
        if self.context.method == "all-gather":
            found = Collective("all_gather", ranks, ranks * nbytes, dtype=self.dtype)
            asks = step == 0
        else:
            found = Collective("sendrecv", ranks, nbytes, dtype=self.dtype)
            asks = step < ranks - 1
        return (Exchange(("context",), found, overlaps=True),) if asks else ()

    @property
    def _merge_s(self) -> float:
        """Seconds in which a step's output joins the others': out - sigmoid(...) (out - new), in float32.

        A kernel each for the type, the difference, the product and the sum.
        """
        kernels = (self.roofline.itemsize + _FLOAT32, 3 * _FLOAT32, 2 * _FLOAT32, 3 * _FLOAT32)
        return self.query * sum(kernels) / self.roofline.bytes_per_s

    @property
    def _add_s(self) -> float:
        """Seconds in which a step's gradients are added to those in float32."""
        elements = self.query + 2 * self.key_value
        return elements * (self.roofline.itemsize + 2 * _FLOAT32) / self.roofline.bytes_per_s

    def _turned(self, tensors: tuple[int, ...]) -> Pass:
        """All-to-alls between all heads of some tokens and all tokens of some heads, a tensor each."""
        return tuple(
            Exchange(
                ("context",),
                Collective(
                    "all_to_all", self.context.degree, elements * self.roofline.itemsize, dtype=self.dtype
                ),
            )
            for elements in tensors
        )
