"""What a layer of Aleph Alpha's scaling keeps for backward and takes for a moment, tensor by tensor.

github.com/Aleph-Alpha/scaling @ 01b9d21dbafb, src/scaling/core/nn and src/scaling/transformer/model: torch's
own operators in bfloat16 wherever no kernel is named. Queries, keys and values are views of one product,
which stays as long as the values do. The loss is in float32, and so is the norm as written, like Llama's own.

Two figures are inferred from the labels of what ran out of memory. Attention that writes its scores has them
in float32 too, also with the kernel that the files call fused. Logits that tensor-parallel ranks gather cost
8 bytes more than those of one rank: the gather has them in a list, flat, and concatenated, and backward their
gradient, in blocks that the allocator then splits for activations of later micro-batches.
"""

from typing import NamedTuple

NORMS = 12
"""Bytes per element that two norms as written keep: the input in float32, the output before its weight."""

LOGITS, GATHERED = 14, 8
"""Bytes per logit: in bfloat16; log-probability and two gradients in float32; more if ranks gather them."""

WRITTEN, PASSING = 6, 8
"""Bytes per score that attention keeps, softmax in float32 and in bfloat16; and its gradients in float32."""


class LlamaLayer(NamedTuple):
    """A layer on one of ``tensor`` ranks: ``tokens`` of a micro-batch of ``batch`` sequences.

    ``norms`` says whether a kernel does the norms, ``flash`` whether one does attention.
    """

    tokens: int
    batch: int
    width: int
    heads: int
    hidden: int
    tensor: int
    cuts_tokens: bool
    norms: bool
    flash: bool

    @property
    def between(self) -> int:
        """Bytes of the layer's input, and of its output."""
        return 2 * self.tokens * self.width // (self.tensor if self.cuts_tokens else 1)

    @property
    def scores(self) -> int:
        """The number of scores."""
        return self.tokens * self.tokens // self.batch * self.heads // self.tensor

    @property
    def kept(self) -> dict[str, int]:
        """Bytes of each kind of tensor."""
        several, element = self.batch > 1, 2 * self.tokens * self.width // self.tensor
        attends = 4 * self.tokens * self.heads // self.tensor if self.flash else WRITTEN * self.scores
        return {
            # as written a norm keeps its float32 copy in place of its input
            "norms": 2 * self.between if self.norms else NORMS * self.between // 2,
            "inputs of products": 2 * 2 * self.tokens * self.width,
            # the product with its views; copied head by head where scores of several sequences are written
            "queries, keys, values": (3 if several and not self.flash else 5) * element,
            # the kernel's output; of several sequences the next product has a copy of it
            "output of attention": (2 if several and self.flash else 1) * element,
            "log-sum-exp or scores": attends,
            "feed-forward": 4 * 2 * self.tokens * self.hidden // self.tensor,
        }

    @property
    def passing(self) -> int:
        """Bytes that backward takes for a moment: gradients of the feed-forward network, norms and scores."""
        feed_forward = 3 * 2 * self.tokens * self.hidden // self.tensor
        return feed_forward + NORMS * self.between // 2 + (0 if self.flash else PASSING * self.scores)


def head(tokens: int, vocabulary: int, width: int, tensor: int) -> int:
    """Return the bytes of the last norm and of the loss at its peak, the backward of its log-softmax."""
    logit = LOGITS + (GATHERED if tensor > 1 else 0)
    return logit * tokens * vocabulary + 2 * 2 * tokens * width
