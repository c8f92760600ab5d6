"""Stacks of training software: which kernels each launches for a decoder's layer besides its products.

Bytes are of 16-bit activations per token and column: a tensor that is read or written once counts 2. They
follow from the kernels that each stack's source launches, an elementwise step in eager PyTorch as one kernel
each; those of ``eager`` and ``transformers`` agree with recordings on fake tensors
(tests/sim/compute/test_recorded.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ringside.sim.compute.kept import ALEPH, MEGATRON, Kept
from ringside.topologies.names import one_of

FUSED, OTHERS = 1.01, 1.21
"""Training over the sum of its kernels alone: of Megatron-core with TransformerEngine, and of other stacks.

Fitted to published steps (`ringside.validation.scorecard.absolute`)."""


class PerPass(NamedTuple):
    """A figure of forward, and of backward."""

    forward: float
    backward: float


NO_TIME = PerPass(0.0, 0.0)
"""Of kernels that their host launches well ahead of the GPU."""

LAUNCHED = PerPass(0.4, 0.6)
"""Shares of a layer's kernels that forward and backward launch."""

NANOTRON_LAUNCH_S = PerPass(0.00168, 0.00252)
"""Fitted to nanotron's layers on H100 (`ringside.validation.published.training.ultrascale`)."""


LAYER_NORM = PerPass(4, 12)
"""Bytes of a layer norm in one kernel, in backward with the sum of the branch's gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack by name, with the bytes per token and column of what it launches.

    ``norm`` is an RMSNorm, in backward with the sum of the branch's gradients; all stacks have one kernel for
    `LAYER_NORM`. ``residual`` is the sum with what went around the branch, ``dropped`` the same with dropout.
    ``biased`` counts backward's bytes per output column of a product with a bias. ``rotary`` acts on queries
    and keys, ``gated`` and ``plain`` on the hidden width of the feed-forward network, ``joined`` copies
    gradients of queries, keys and values into one tensor. ``loss`` counts bytes per logit, ``scores`` bytes
    per score of attention that writes them, with dropout, and ``undropped`` without. ``launches`` are a
    layer's kernels of these kinds. ``flash`` says that attention usually is one kernel, of FlashAttention's
    ``flash_version``. ``accumulates`` says that products add gradients to float32 ones. ``overhead`` is the
    time of training over that of its kernels. ``kept`` is what a layer keeps for backward. ``stops_early``
    says that recomputing a layer ends before its last product, whose result nothing in backward needs.
    ``scatters`` says that each tensor-parallel rank sends its part of a tensor to the next stage of a
    pipeline, whose ranks gather it. ``splits`` says that parameters are a split of FSDP1's flat ones.
    ``launch_s`` are the seconds that the host needs to launch a layer's kernels.
    """

    name: str
    meaning: str
    overhead: float
    norm: PerPass
    residual: PerPass
    dropped: PerPass
    biased: float
    rotary: PerPass
    gated: PerPass
    plain: PerPass
    joined: float
    loss: PerPass
    scores: PerPass
    undropped: PerPass
    launches: PerPass
    flash: bool
    flash_version: int
    accumulates: bool
    kept: Kept
    stops_early: bool = False
    scatters: bool = False
    splits: bool = True
    launch_s: PerPass = NO_TIME

    def attention(self, capability: int | None) -> str:
        """Return the kernel of attention that the stack chooses on a GPU, such as 90 for sm_90."""
        if not self.flash:
            return "unfused"
        # TransformerEngine prefers FlashAttention on Hopper, and cuDNN's kernel elsewhere
        return "fused" if self.kept.workspaces and (capability or 0) // 10 != 9 else "flash"

    def accumulating(self, fuses: bool | None) -> "Stack":
        """Return the stack whose products add gradients to float32 ones, or do not; None: as it usually does.

        Raise ValueError if it cannot.
        """
        if fuses is None or fuses == self.accumulates:
            return self
        if fuses:
            able = ", ".join(name for name, stack in STACKS.items() if stack.accumulates)
            raise ValueError(
                f"stack {self.name} has no products that add gradients to float32 ones; leave "
                f"`accumulation_fusion` out, or write `stack` {able}"
            )
        return replace(self, accumulates=False, kept=replace(self.kept, dummies=False))

    def launched_in(self, seconds: float) -> "Stack":
        """Return the stack whose layers take ``seconds`` to launch, forward and backward."""
        return replace(self, launch_s=PerPass(*(share * seconds for share in LAUNCHED)))

    def launching(self, *, layer_norm: bool, dropout: bool) -> "Stack":
        """Return the stack with the norm of a model, and with its sums of dropout."""
        norm = LAYER_NORM if layer_norm else self.norm
        return replace(self, norm=norm, residual=self.dropped if dropout else self.residual)


_TE = Stack(
    name="te",
    meaning="Megatron-core with TransformerEngine, from 2024",
    overhead=FUSED,
    norm=PerPass(4, 12),
    residual=PerPass(6, 0),
    dropped=PerPass(7, 5),
    biased=0,
    rotary=PerPass(4, 4),
    gated=PerPass(6, 10),
    plain=PerPass(4, 6),
    joined=4,
    loss=PerPass(14, 10),
    scores=PerPass(13, 19),
    undropped=PerPass(8, 12),
    launches=PerPass(14, 24),
    flash=True,
    flash_version=3,
    accumulates=True,
    kept=Kept(loss=MEGATRON, workspaces=True, dummies=True),
)
_MEGATRON = replace(
    _TE,
    name="megatron",
    meaning="Megatron-LM of 2020 to 2022, whose attention writes its scores",
    overhead=OTHERS,
    biased=2,
    plain=PerPass(4, 8),
    loss=PerPass(38, 14),
    launches=PerPass(12, 18),
    flash=False,
    flash_version=2,
    kept=Kept(loss=MEGATRON, local=True),
    # --no-scatter-gather-tensors-in-pipeline is off (Narayanan et al., arXiv:2104.04473, section 4.1);
    # DeepSpeed's PipelineEngine has ``is_pipe_partitioned``
    scatters=True,
)
_FSDP1 = replace(
    _TE,
    name="fsdp1",
    meaning="llm-foundry on FSDP1",
    overhead=OTHERS,
    dropped=PerPass(11, 5),
    biased=2,
    loss=PerPass(18, 26),
    flash_version=2,
    accumulates=False,
    kept=Kept(),
    stops_early=True,
)
_EAGER = replace(
    _FSDP1,
    name="eager",
    meaning="PyTorch as written, with its fused RMSNorm",
    norm=PerPass(10, 18),
    rotary=PerPass(20, 20),
    gated=PerPass(10, 18),
    kept=Kept(gated=8, frees=True),
)
_TRANSFORMERS = replace(
    _EAGER,
    name="transformers",
    meaning="Hugging Face's models as written",
    norm=PerPass(36, 98),
    rotary=PerPass(20, 28),
    # eager_attention_forward scales and masks scores in kernels of their own, its softmax is in float32
    scores=PerPass(37, 41),
    undropped=PerPass(32, 36),
    launches=PerPass(30, 54),
    kept=replace(_EAGER.kept, softmax_fp32=True),
    stops_early=False,
)
_COMPILE = replace(
    _FSDP1,
    name="compile",
    meaning="torch.compile of each layer",
    norm=PerPass(4, 10),
    residual=PerPass(4, 0),
    dropped=PerPass(5, 5),
    rotary=PerPass(8, 8),
    loss=PerPass(8, 8),
)
_JAX = replace(
    _COMPILE,
    name="jax",
    meaning="MaxText and Paxml: XLA's fusions, cuDNN's attention",
    norm=PerPass(6, 16),
    residual=PerPass(6, 0),
    dropped=PerPass(7, 5),
    rotary=PerPass(4, 4),
    gated=PerPass(6, 10),
    launches=PerPass(12, 18),
    flash_version=3,
    splits=False,
)
_INTERNEVO = replace(
    _TE, name="internevo", meaning="InternEvo with fused kernels", overhead=OTHERS, loss=PerPass(6, 6),
    flash_version=2, kept=Kept(),
)  # fmt: skip
_NANOTRON = replace(
    _FSDP1, name="nanotron", meaning="nanotron", gated=PerPass(10, 18), loss=PerPass(38, 14),
    stops_early=False, launch_s=NANOTRON_LAUNCH_S,
)  # fmt: skip
_ALEPH_RMS = replace(
    _INTERNEVO,
    name="aleph-rms",
    meaning="Aleph Alpha's scaling with an RMSNorm kernel",
    rotary=PerPass(20, 28),
    gated=PerPass(10, 18),
    loss=PerPass(38, 14),
    kept=Kept(gated=8, rotary=2, loss=ALEPH),
)
_ALEPH = replace(
    _ALEPH_RMS,
    name="aleph",
    meaning="Aleph Alpha's scaling with RMSNorm as written",
    norm=PerPass(36, 98),
    launches=PerPass(30, 50),
    kept=replace(_ALEPH_RMS.kept, rms=8),
)
_ALEPH_TORCH = replace(
    _ALEPH,
    name="aleph-torch",
    meaning="Aleph Alpha's scaling with RMSNorm and attention as written",
    scores=PerPass(21, 23),
    undropped=PerPass(16, 18),
    flash=False,
    kept=replace(_ALEPH.kept, softmax_fp32=True),
)

STACKS: Mapping[str, Stack] = {
    stack.name: stack
    for stack in (
        _TE, _MEGATRON, _EAGER, _TRANSFORMERS, _COMPILE, _JAX, _FSDP1, _INTERNEVO, _NANOTRON,
        _ALEPH, _ALEPH_RMS, _ALEPH_TORCH,
    )
}  # fmt: skip
"""Every stack by name."""


def find_stack(name: str) -> Stack:
    """Return the stack of that name."""
    if name not in STACKS:
        raise ValueError(f"unknown stack {name!r}; write {one_of(STACKS, name)}")
    return STACKS[name]
