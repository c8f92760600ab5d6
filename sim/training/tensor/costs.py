"""What a decoder's layer costs on a rank besides its products: attention, activations, loss, embedding."""

from dataclasses import dataclass

from ringside.sim.compute.kept import LOSSES
from ringside.sim.compute.kernels import Flash, Scores, Streaming
from ringside.sim.compute.prices import StackOnGpu
from ringside.sim.compute.stacks import PerPass
from ringside.sim.training.tensor.cut import Cut
from ringside.sim.workload.decoder import CHECKPOINTING, USUAL_MODULES
from ringside.topologies.names import one_of

WRITTEN = ("unfused", "unfused-fp32")
"""Attention in several kernels that write scores, with the stack's softmax, or torch's in float32."""

ATTENTION = ("flash", "fused", "full", *WRITTEN)
"""Kernels of attention: FlashAttention's or cuDNN's one, which skip masked scores, one that computes all, or
those of `WRITTEN`."""

SOFTMAX_FP32, SOFTMAX_FP32_DROPPED = PerPass(32, 40), PerPass(37, 45)
"""Bytes per 16-bit score that is converted to float32, masked, and converted back after softmax, without and
with dropout (megatron/core/fusions/fused_softmax.py, ``forward_torch_softmax``)."""

LOOKED_UP = PerPass(4, 8)
"""Bytes per token and column of an embedding: a row read and written, gradients read and added to a row."""

IN_KERNELS = {"compiled": PerPass(8, 8), "fused": PerPass(6, 6)}
"""Bytes per logit that a loss moves compiled, and in one kernel, which writes gradients over the logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """How a decoder is computed.

    ``dtype`` is the stored type of parameters and their gradients, None for the precision's own.
    ``checkpointing`` is one of `CHECKPOINTING`, ``recompute`` are the modules that ``selective`` recomputes,
    ``attention`` one of `ATTENTION`, ``loss`` one of `LOSSES`. ``dropout`` keeps masks. With
    ``attention_mask`` a batch has a mask of a byte per score of one head. Without ``permute_fusion`` experts'
    outputs are kept: torch's ``index_add_`` keeps what it adds.
    """

    dtype: str | None = None
    checkpointing: str = "none"
    recompute: tuple[str, ...] = USUAL_MODULES
    attention: str = "flash"
    dropout: bool = False
    loss: str = "written"
    attention_mask: bool = False
    permute_fusion: bool = True

    def __post_init__(self) -> None:
        if self.checkpointing not in CHECKPOINTING:
            allowed = ", ".join(CHECKPOINTING)
            raise ValueError(f"unknown checkpointing {self.checkpointing!r}; write one of {allowed}")
        if self.attention not in ATTENTION:
            raise ValueError(
                f"unknown attention kernel {self.attention!r}; write {one_of(ATTENTION, self.attention)}"
            )
        if self.loss not in LOSSES:
            raise ValueError(f"unknown loss {self.loss!r}; write {one_of(LOSSES, self.loss)}")


@dataclass(frozen=True, slots=True)
class KernelCosts:
    """Seconds of a micro-batch of ``batch`` sequences on one rank."""

    cut: Cut
    computing: StackOnGpu
    batch: int
    numerics: Numerics

    @property
    def _tokens(self) -> int:
        return self.cut.tokens(self.batch)

    @property
    def core(self) -> PerPass:
        """Seconds of attention proper on all tokens: two products with the scores."""
        decoder, how, computing = self.cut.decoder, self.numerics, self.computing
        heads, scored = self.batch * self.cut.heads, self.cut.scored // self.cut.heads
        if how.attention not in WRITTEN:
            flash = Flash(
                heads, decoder.sequence, scored, how.attention != "full",
                version=computing.stack.flash_version,
            )  # fmt: skip
            return PerPass(computing.seconds(flash), computing.seconds(flash._replace(backward=True)))
        products = Scores(heads, decoder.sequence, scored)
        passes = computing.stack.scores if how.dropout else computing.stack.undropped
        if (
            how.attention == "unfused-fp32"
            and computing.itemsize <= 2
            and not computing.stack.kept.softmax_fp32
        ):
            passes = SOFTMAX_FP32_DROPPED if how.dropout else SOFTMAX_FP32

        def seconds(products: Scores, nbytes: float) -> float:
            more = nbytes * heads * decoder.sequence**2 - 2 * products.elements
            return computing.seconds(products, Streaming(more * computing.itemsize / 2, 4))

        return PerPass(
            seconds(products, passes.forward), seconds(products._replace(backward=True), passes.backward)
        )

    @property
    def turned(self) -> PerPass:
        """Seconds of queries' and keys' norms and rotary positions, in backward of joining gradients."""
        cut, stack, streamed_s = self.cut, self.computing.stack, self.computing.streamed_s
        query, key_value = self._tokens * cut.query, self._tokens * cut.key_value
        rotary = PerPass(0, 0) if cut.decoder.positions else stack.rotary
        forward_s, backward_s = (streamed_s(query + key_value, nbytes, 0) for nbytes in rotary)
        if cut.decoder.qk_norm and not cut.decoder.latent:
            forward_s += streamed_s(query + key_value, stack.norm.forward, 2)
            backward_s += streamed_s(query + key_value, stack.norm.backward, 2)
        joined_s = streamed_s(query + 2 * key_value, stack.joined, 0)
        return PerPass(forward_s, backward_s + joined_s + self._biases_s(query + 2 * key_value))

    @property
    def activation(self) -> PerPass:
        """Seconds of the activation function."""
        stack, hidden = self.computing.stack, self._tokens * self.cut.hidden
        nbytes = stack.gated if self.cut.decoder.gated else stack.plain
        forward_s, backward_s = (self.computing.streamed_s(hidden, one, 0) for one in nbytes)
        return PerPass(forward_s, backward_s + self._biases_s(hidden * (2 if self.cut.decoder.gated else 1)))

    def _biases_s(self, columns: int) -> float:
        """Return the seconds of the gradients of biases, of a branch with ``columns`` behind its norm."""
        if not self.cut.decoder.biases:
            return 0.0
        after = self._tokens * self.cut.decoder.width
        return self.computing.streamed_s(columns + after, self.computing.stack.biased, 0)

    @property
    def loss(self) -> PerPass:
        """Seconds of the loss."""
        nbytes = IN_KERNELS.get(self.numerics.loss, self.computing.stack.loss)
        logits = self._tokens * self.cut.vocabulary
        return PerPass(*(self.computing.streamed_s(logits, one, 4) for one in nbytes))

    def looked_up(self, rows: int) -> PerPass:
        """Return the seconds of embeddings that look up ``rows`` rows for each token."""
        columns = rows * self._tokens * self.cut.decoder.width
        return PerPass(*(self.computing.streamed_s(columns, nbytes) for nbytes in LOOKED_UP))
