"""Activations that a decoder's layers keep for backward on one rank, and hold for a moment.

Korthikanti et al., arXiv:2205.05198, section 4, count the bytes of a micro-batch's activations that are kept
for backward, for GPT in 16 bits with dropout and an attention that stores its scores: s b h (34 + 5 a s / h)
per layer. Here the same tensors are added up one by one with what a stack keeps of each
(`ringside.sim.compute.kept`), which extends to gated networks, grouped queries, latent attention, experts,
fused attention and no dropout.
"""

from dataclasses import dataclass

from ringside.sim.compute.kept import Kept, OfLoss
from ringside.sim.training.tensor.costs import WRITTEN, Numerics
from ringside.sim.training.tensor.cut import Cut

LOG_SUM_EXP = 4
"""Bytes that attention in one kernel keeps per row of scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """Tokens of a layer with ``experts`` on a rank: its ``own``, and ``got``, which its experts compute.

    ``hidden`` is the width of a rank's part of an expert, ``shared`` that of what all tokens pass. They are
    ``sent`` where experts are on several ranks.
    """

    experts: int
    own: int
    got: int
    hidden: int
    shared: int
    sent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Activations of a micro-batch of ``batch`` sequences, in elements of ``itemsize`` bytes.

    ``routed`` are tokens of a layer that has experts instead of a feed-forward network.
    """

    cut: Cut
    batch: int
    numerics: Numerics
    kept: Kept
    itemsize: int = 2
    routed: Routed | None = None

    @property
    def terms(self) -> dict[str, int]:
        """Bytes of a layer without recomputation, by what they belong to."""
        return {
            "norms": 2 * self._norm,
            "queries, keys and values": self._projected,
            "attention": self.core,
            "attention's output": self._bytes(self._tokens * self._output, 2),
            "masks": 2 * self._mask,
            **({"feed-forward": self._feed_forward} if self.routed is None else self._experts(self.routed)),
        }

    @property
    def kept_terms(self) -> dict[str, int]:
        """Bytes that a layer keeps, by what they belong to."""
        recomputed = self._recomputed
        return {name: nbytes - recomputed.get(name, 0) for name, nbytes in self.terms.items()}

    @property
    def recomputed_nbytes(self) -> int:
        """Bytes that a layer's backward recomputes."""
        return sum(self._recomputed.values())

    @property
    def _recomputed(self) -> dict[str, int]:
        """Bytes that backward recomputes, by what they belong to: all but the input, or those of modules."""
        terms, routed, how = self.terms, self.routed, self.numerics
        if how.checkpointing == "none":
            return {}
        if how.checkpointing == "full":
            return terms | {"norms": terms["norms"] - self.between}
        modules = {"core_attn": {"attention": self.core}, "layernorm": {"norms": 2 * self._gathered}}
        if self.cut.decoder.latent:
            modules["mla_up_proj"] = {"queries, keys and values": self._widened}
        if routed is None:
            modules["mlp"] = {"feed-forward": terms["feed-forward"]}
        elif "moe" in how.recompute:
            modules["moe"] = {name: terms[name] for name in ("router", "experts", "shared experts")}
        else:
            modules["moe_act"] = {"experts": self._bytes(routed.got * routed.hidden, 2)}
            modules["shared_experts"] = {"shared experts": terms["shared experts"]}
        return {name: nbytes for one in how.recompute for name, nbytes in modules.get(one, {}).items()}

    @property
    def between(self) -> int:
        """Bytes of one tensor between products."""
        return self._tokens * self.cut.decoder.width * self.itemsize // self.cut.spread

    @property
    def core(self) -> int:
        """Bytes of attention proper without inputs and output, which selective checkpointing recomputes."""
        how, cut = self.numerics, self.cut
        rows = self._tokens * cut.heads
        exchanged = 0
        if cut.context.degree > 1:
            # all-to-alls keep the output before it is sent, rings write keys and values again
            elements = cut.query if cut.context.method == "ulysses" else 2 * cut.key_value
            exchanged = self._bytes(self._tokens * elements, 2)
        if how.attention in WRITTEN:
            nbytes = self.kept.of_scores(
                self.itemsize, dropout=how.dropout, softmax_fp32=how.attention == "unfused-fp32"
            )
            return exchanged + rows * cut.decoder.sequence * nbytes
        # cuDNN keeps its output beside the input of the product behind it
        again = self._bytes(self._tokens * self._output, 2) if how.attention == "fused" else 0
        return exchanged + again + LOG_SUM_EXP * rows

    @property
    def backward(self) -> int:
        """Bytes of the gradients that a layer's backward holds: of its network inside, and of its input."""
        if self.routed is None:
            tokens, hidden = self._tokens, self.cut.hidden
        else:
            tokens, hidden = self.routed.got, self.routed.hidden
        gradients = 0
        if self.numerics.checkpointing != "full":
            # the product behind the activation function has freed its input
            inside = 2 + self.cut.decoder.gated - self.kept.frees
            gradients = tokens * hidden * inside * self.itemsize
        weight = hidden * self.cut.decoder.width * self.itemsize if self.kept.frees else 0
        return max(gradients + weight, self._returned) + self.between

    @property
    def _returned(self) -> int:
        """Bytes of gradients on their way to experts: as permuted, as received, as sorted by expert.

        The first is freed when the stream of its all-to-all is done, and not before.
        """
        if self.routed is None:
            return 0
        copies = 3 if self.routed.sent else 2
        return copies * self._bytes(self.routed.got * self.cut.decoder.width, 2)

    @property
    def embedding(self) -> dict[str, int]:
        """Bytes of the embedding: its dropout's mask."""
        return {"masks": self._mask}

    @property
    def head(self) -> dict[str, int]:
        """Bytes that the last norm and the loss keep."""
        return {"norms": self.between + self._gathered, "logits": int(self._logits * self._loss.kept)}

    @property
    def head_forward(self) -> int:
        """Bytes that the output product holds more in forward: a rank's logits, and those of all, twice.

        torch gathers along the first dimension, and then puts them in order
        (torch/distributed/_functional_collectives.py, PyTorch 2.13, `_maybe_view_chunk_cat`).
        """
        degree = self.cut.parallel.degree if self.cut.parallel.gathers_logits else 1
        whole = self._bytes(self._logits, 2)
        return max(whole // degree + 2 * whole - self.head["logits"], 0) if degree > 1 else 0

    @property
    def head_backward(self) -> int:
        """Bytes that the output product's gradients hold more in backward."""
        weight = self.cut.vocabulary * self.cut.decoder.width * self.itemsize
        product = self._bytes(self._logits, 2) + weight
        product += self.between if self.numerics.loss != "fused" else 0
        return max(product - self.head["logits"], 0)

    @property
    def loss_forward(self) -> int:
        """Bytes that the loss holds more in forward, and those of a batch's mask until it returns."""
        return int(self._logits * self._loss.forward) - self.head["logits"] + self._attention_mask

    @property
    def loss_backward(self) -> int:
        """Bytes that the loss holds more in backward."""
        return int(self._logits * self._loss.backward) - self.head["logits"]

    @property
    def _logits(self) -> int:
        parallel = self.cut.parallel
        return self._tokens * self.cut.vocabulary * (parallel.degree if parallel.gathers_logits else 1)

    @property
    def _attention_mask(self) -> int:
        sequence = self.cut.decoder.sequence
        return self._tokens * sequence if self.numerics.attention_mask else 0

    @property
    def _loss(self) -> OfLoss:
        return self.kept.of_loss(self.numerics.loss, self.itemsize)

    @property
    def _tokens(self) -> int:
        return self.cut.tokens(self.batch)

    @property
    def _output(self) -> int:
        """Width of attention's output."""
        latent = self.cut.decoder.latent
        return self.cut.heads * latent.value if latent else self.cut.query

    def _bytes(self, elements: int, in_16_bits: float) -> int:
        """Return the bytes of elements, of a figure for 16 bits."""
        return int(elements * in_16_bits * self.itemsize / 2)

    @property
    def _gathered(self) -> int:
        """Bytes of one input of products: DTensor keeps it gathered."""
        kept_whole = self.cut.parallel.style == "dtensor"
        return self.between * (self.cut.spread if kept_whole else 1)

    @property
    def _norm(self) -> int:
        """Bytes of a norm: input, output and statistics."""
        kept, layer_norm = self.kept, self.cut.decoder.norm == "layer"
        nbytes = kept.layer_norm if layer_norm else kept.rms
        statistics = kept.layer_statistics if layer_norm else kept.rms_statistics
        inputs = int(self.between * (nbytes - 2) / 2)
        return inputs + self._gathered + int(self._tokens // self.cut.spread * statistics)

    @property
    def _mask(self) -> int:
        return int(self.between // self.itemsize * self.kept.mask) if self.numerics.dropout else 0

    @property
    def _projected(self) -> int:
        """Bytes of what attention proper reads, and of what it is made from."""
        cut = self.cut
        if cut.decoder.latent:
            narrow = self._bytes(self._tokens // cut.spread * cut.narrow, 2)
            return narrow + self._widened
        turned = self.kept.rotary * (cut.query + cut.key_value) if not cut.decoder.positions else 0
        normed = 2 if cut.decoder.qk_norm else 1
        columns = normed * (cut.query + cut.key_value) + cut.key_value
        read = self._bytes(self._tokens * columns, 2)
        return read + self._bytes(self._tokens, turned)

    @property
    def _widened(self) -> int:
        """Bytes of the queries, keys and values that latent attention makes of narrow vectors."""
        return self._bytes(self._tokens * (self.cut.attended - self._output), 2)

    @property
    def _feed_forward(self) -> int:
        nbytes = self.kept.gated if self.cut.decoder.gated else self.kept.plain
        return self._bytes(self._tokens * self.cut.hidden, nbytes)

    def _experts(self, routed: Routed) -> dict[str, int]:
        """Return the bytes of a router, of the experts, and of what all tokens pass."""
        cut, kept = self.cut, self.kept
        gated = cut.decoder.gated
        inside = kept.gated if gated else kept.plain + kept.weighted
        whole = routed.got * cut.decoder.width * (1 if self.numerics.permute_fusion else 2)
        return {
            "router": int(routed.own * routed.experts * kept.routed),
            "experts": self._bytes(whole, 2) + self._bytes(routed.got * routed.hidden, inside),
            "shared experts": self._bytes(self._tokens * routed.shared, kept.gated if gated else kept.plain),
        }
