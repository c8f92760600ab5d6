"""Activations that a decoder's layers keep for backward on one rank.

Korthikanti et al., arXiv:2205.05198, section 4, count the bytes of a micro-batch's activations that are kept
for backward, for GPT in 16 bits with dropout and an attention that stores its scores: s b h (34 + 5 a s / h)
per layer. Here the same tensors are added up one by one, which extends to gated networks, grouped queries,
fused attention and no dropout.
"""

from dataclasses import dataclass

from ringside.sim.training.tensor.cut import Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Activations that a micro-batch of ``batch`` sequences keeps, in elements of ``itemsize`` bytes.

    ``fused`` attention keeps one number per row of scores instead of all scores. ``experts`` are the
    bytes kept by a mixture of experts where the layer has one instead of a feed-forward network.
    """

    cut: Cut
    batch: int
    itemsize: int = 2
    dropout: bool = False
    fused: bool = True
    experts: int | None = None

    @property
    def _tokens(self) -> int:
        return self.cut.tokens(self.batch)

    @property
    def between(self) -> int:
        """Bytes of one tensor between products."""
        return self._tokens * self.cut.decoder.width * self.itemsize // self.cut.spread

    @property
    def gathered(self) -> int:
        """Bytes of one input of products: DTensor keeps it gathered."""
        kept_whole = self.cut.parallel.style == "dtensor"
        return self.between * (self.cut.spread if kept_whole else 1)

    @property
    def _mask(self) -> int:
        return self.between // self.itemsize if self.dropout else 0

    @property
    def core(self) -> int:
        """Bytes of attention proper, without its inputs and output: the saving of selective checkpointing."""
        rows = self._tokens * self.cut.heads
        if self.fused:
            return 4 * rows
        return rows * self.cut.decoder.sequence * (2 * self.itemsize + 1 if self.dropout else self.itemsize)

    @property
    def layer(self) -> int:
        """Bytes of a layer without recomputation."""
        attention = self._tokens * (self.cut.attended + self.cut.narrow) * self.itemsize
        feed_forward = self.experts
        if feed_forward is None:
            hidden = (3 if self.cut.decoder.gated else 2) * self.cut.hidden
            feed_forward = self._tokens * hidden * self.itemsize
        return 2 * (self.between + self.gathered + self._mask) + attention + feed_forward + self.core

    def kept(self, checkpointing: str) -> tuple[int, int]:
        """Return the bytes that a layer keeps, and those that backward recomputes."""
        if checkpointing == "none":
            return self.layer, 0
        again = self.core if checkpointing == "selective" else self.layer - self.between
        return self.layer - again, again

    @property
    def embedding(self) -> int:
        """Bytes of the embedding: its dropout's mask."""
        return self._mask

    @property
    def head(self) -> int:
        """Bytes of the last norm, the output product and its float32 results."""
        return self.between + self.gathered + 4 * self._tokens * self.cut.vocabulary
