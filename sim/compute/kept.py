"""What a stack's layers keep for backward, besides the inputs of their products.

Bytes are of 16-bit training, per token and column of the tensor that they belong to: an input that is kept
once counts 2. Sources: Megatron-LM d98e8a6 and TransformerEngine d0067d0 where no other is named.
"""

from dataclasses import dataclass
from typing import NamedTuple


class OfLoss(NamedTuple):
    """Bytes per logit that the loss keeps after forward, and the most during forward and backward.

    ``copied`` of forward's are 16-bit logits beside a float32 copy, which float32 training does not make.
    """

    kept: float
    forward: float
    backward: float
    copied: float = 2


LOSSES = ("written", "compiled", "fused")
"""The loss as the stack writes it, compiled, or in one kernel that writes gradients over the logits."""

MEGATRON = OfLoss(4, 6, 6)
"""16-bit logits live until the loss returns (core/models/gpt/gpt_model.py:807-839); their float32 copy turns
into exponents, probabilities and gradients in place (core/tensor_parallel/cross_entropy.py:25-88)."""

EAGER = OfLoss(4, 10, 12)
"""16-bit logits, their float32 copy and its log-softmax, which alone is kept. In backward, float32 gradients
of the log-softmax and of its input beside it, as torch's own accounting finds."""

ALEPH = OfLoss(4, 10, 14)
"""Likewise, and in backward the 16-bit logits, which Aleph Alpha's training step still holds
(github.com/Aleph-Alpha/scaling @ 01b9d21dbafb)."""

COMPILED = OfLoss(4, 10, 10)
"""Megatron's ``--cross-entropy-loss-fusion``: compiled, it computes no longer in place. Inferred from the
peaks of Megatron-LM's functional tests."""

FUSED = OfLoss(2, 2, 2, copied=0)
"""TransformerEngine's kernel, and others like it, write into the logits
(transformer_engine/pytorch/triton/cross_entropy.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a stack keeps.

    ``rms`` and ``layer_norm`` are a norm's input and output, ``rms_statistics`` and ``layer_statistics`` its
    bytes per token. ``rotary`` counts per column of queries and keys, beside those that attention reads.
    ``gated`` and ``plain`` count per column of the feed-forward network: inputs of the activation function
    and of the product behind it; ``weighted`` is what experts without a gate keep more, whose result is
    multiplied by the router's probabilities. ``routed`` counts per token and expert of a router.
    ``softmax_fp32`` says that an attention that writes its scores computes their softmax in float32.
    ``mask`` is one of dropout between products. ``loss`` is the loss as written. ``workspaces`` are buffers
    of its own products beside cuBLAS's, ``dummies`` says that it holds a weight's gradient of each shape that
    nothing reads. ``frees`` says that a product's input is freed as soon as its gradients are made, which are
    tensors of their own, as autograd does. ``local`` says that layers are Megatron-core's own: scores go
    into a buffer that is held, and of all products only a router's is TransformerEngine's.
    """

    rms: float = 4
    layer_norm: float = 4
    rms_statistics: float = 4
    layer_statistics: float = 8
    rotary: float = 0
    gated: float = 6
    plain: float = 4
    weighted: float = 2
    routed: float = 12
    softmax_fp32: bool = False
    mask: float = 1
    loss: OfLoss = EAGER
    workspaces: bool = False
    dummies: bool = False
    frees: bool = False
    local: bool = False

    def of_scores(self, itemsize: int, *, dropout: bool, softmax_fp32: bool = False) -> int:
        """Return the bytes per score of an attention that writes them, of elements of ``itemsize`` bytes.

        Kept are what softmax makes of a score, dropout's mask, and what is multiplied with the value, if that
        is another tensor.
        """
        softmax = max(itemsize, 4 if self.softmax_fp32 or softmax_fp32 else 0)
        return softmax + (1 + itemsize if dropout else itemsize if softmax > itemsize else 0)

    def of_loss(self, how: str, itemsize: int = 2) -> OfLoss:
        """Return the bytes per logit of one of `LOSSES`, of logits with elements of ``itemsize`` bytes."""
        loss = {"written": self.loss, "compiled": COMPILED, "fused": FUSED}[how]
        if itemsize <= 2:
            return loss
        if not loss.copied:
            return OfLoss(*(one * itemsize / 2 for one in loss))
        return loss._replace(forward=loss.forward - loss.copied)
