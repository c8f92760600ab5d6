"""Fields of a training that say which kernels run, and how fast."""

from dataclasses import dataclass
from pathlib import Path

from ringside.sim.compute.grids import read_rates
from ringside.sim.compute.prices import StackOnGpu, prices_on
from ringside.sim.compute.stacks import STACKS, find_stack
from ringside.sim.questions.question import Question, choices, option
from ringside.sim.training.strategies import MEGATRON
from ringside.sim.training.tensor.costs import ATTENTION
from ringside.sim.workload.devices import Device

STACK_OF = {**dict.fromkeys(MEGATRON, "te"), "fsdp1": "fsdp1", "hybrid_zero": "internevo"}
"""The usual stack of strategies that belong to one framework."""

OF_DECODERS = ("stack", "attention_efficiency", "dropout", "fused_loss", "products")
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
        "Attention in one kernel, in one with masked scores, or unfused.",
        metavar=choices(ATTENTION), default=None, default_text="the stack's",
    )  # fmt: skip
    dropout: bool = option("Train a decoder with dropout.", default=False)
    fused_loss: bool = option("Compute a decoder's loss in one kernel.", default=False)
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
        stack = find_stack(self.stack or self.usual_stack)
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
