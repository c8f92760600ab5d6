"""Fields of a training that say which kernels run, and how fast."""

from dataclasses import dataclass
from pathlib import Path

from ringside.sim.compute.grids import read_rates
from ringside.sim.compute.kept import LOSSES
from ringside.sim.compute.prices import StackOnGpu, prices_on
from ringside.sim.compute.stacks import STACKS, find_stack
from ringside.sim.questions.question import Question, choices, option
from ringside.sim.training.strategies import MEGATRON
from ringside.sim.training.tensor.costs import ATTENTION
from ringside.sim.workload.devices import Device
from ringside.topologies.units import parse_size

STACK_OF = {**dict.fromkeys((*MEGATRON, "megatron_fsdp"), "te"), "fsdp1": "fsdp1", "hybrid_zero": "internevo"}
"""The usual stack of strategies that belong to one framework."""

OF_DECODERS = ("stack", "launch_ms", "attention_efficiency", "dropout", "loss", "products",
              "accumulation_fusion", "cublas_workspace", "sequential_experts", "no_permute_fusion",
              "attention_mask")  # fmt: skip
"""Fields that apply to decoders alone."""


@dataclass(frozen=True, kw_only=True)
class OfKernels(Question):
    """The kernels of a training.

    ``precision`` is the type of products. Without ``stack`` the strategy decides, without ``attention`` the
    stack or the model.
    """

    precision: str | None = option(
        "Type in which products are computed: bf16, ...", default=None, default_text="as the model usually is"
    )
    stack: str | None = option(
        f"Software whose kernels run: {', '.join(STACKS)}.",
        metavar="NAME", default=None, default_text="by strategy",
    )  # fmt: skip
    compute_efficiency: float | None = option(
        "Share of the GPU's peak that large products reach.", default=None, default_text="by kernel"
    )
    attention: str | None = option(
        "Attention in one kernel of FlashAttention or cuDNN, in one with masked scores, or unfused.",
        metavar=choices(ATTENTION), default=None, default_text="the stack's",
    )  # fmt: skip
    dropout: bool = option("Train a decoder with dropout.", default=False)
    loss: str = option(
        "A decoder's loss: as its stack writes it, compiled, or in one kernel.",
        metavar=choices(LOSSES), default="written",
    )  # fmt: skip
    accumulation_fusion: bool | None = option(
        "Add gradients of weights to float32 ones within products, as Megatron-LM does.",
        "--accumulation-fusion/--no-accumulation-fusion", default=None, default_text="the stack's",
    )  # fmt: skip
    cublas_workspace: int | None = option(
        "Size of one of cuBLAS's workspaces (CUBLAS_WORKSPACE_CONFIG).",
        metavar="SIZE", default=None, default_text="8.125 MiB, 32 MiB from Hopper on", parse=parse_size,
    )  # fmt: skip
    sequential_experts: bool = option(
        "Compute a rank's experts one after another (Megatron-LM without --moe-grouped-gemm).", default=False
    )
    no_permute_fusion: bool = option(
        "Order experts' tokens, and sum them up, by torch's kernels, which keep the results of experts.",
        default=False,
    )  # fmt: skip
    attention_mask: bool = option(
        "A batch brings a mask of every sequence (Megatron-LM without "
        "--no-create-attention-mask-in-dataloader).", default=False,
    )  # fmt: skip
    launch_ms: float | None = option(
        "Time that the host needs to launch a decoder layer's kernels, forward and backward.",
        metavar="MS", default=None, default_text="the stack's",
    )  # fmt: skip
    attention_efficiency: float | None = option(
        "Share of its peak in attention proper.", default=None, default_text="that of products"
    )
    power_cap: float | None = option(
        "Power in W that the GPU is limited to.", default=None, default_text="its data sheet's"
    )
    products: str | None = option(
        "Measured rates of your GPU's kernels (measure compute).",
        metavar="FILE", default=None, default_text="shipped rates",
    )  # fmt: skip

    def computing_on(self, gpu: Device) -> StackOnGpu:
        """Return how the GPU computes a decoder."""
        stack = find_stack(self.stack or self.usual_stack).accumulating(self.accumulation_fusion)
        if self.launch_ms is not None:
            stack = stack.launched_in(self.launch_ms / 1e3)
        prices = prices_on(
            gpu, self.precision, efficiency=self.compute_efficiency,
            attention_efficiency=self.attention_efficiency,
            rates=None if self.products is None else read_rates(Path(self.products)),
        )  # fmt: skip
        return StackOnGpu(prices, stack, stack.overhead if self.compute_efficiency is None else 1.0)

    @property
    def usual_stack(self) -> str:
        """The stack of a training that names none."""
        return "eager"
