"""What recorded operators cost on a GPU, each distinct one priced once."""

from dataclasses import dataclass, field, replace

from ringside.sim.compute.grids import Rates, torch_rates
from ringside.sim.compute.prices import ASYNCHRONOUS, LAUNCH_S, Prices, prices_on
from ringside.sim.recorded.job import Operator
from ringside.sim.recorded.kernels import (
    Convolution,
    HostCopy,
    Normalization,
    OperatorKernel,
    Unaligned,
    kernels,
)
from ringside.sim.workload.architecture import convolves_in, rates_of
from ringside.sim.workload.devices import Device
from ringside.topologies.hardware import pcie, slot_of

PRECISIONS = {
    **{name: name for name in ("bfloat16", "float16", "float32")},
    "float64": "float32",
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), "fp8"),
}
"""The precision of a product by the type of its inputs; others are computed as float32."""


UNALIGNED = {8: 0.37, 4: 0.37, 2: 0.19, 1: 0.19}
"""Rate of a product on tensor cores by the alignment of its rows in bytes, relative to 16-byte alignment.

Medians on an H100 of products in bfloat16, float16 and TensorFloat-32, forward and both gradients, of 512
to 8,192 rows (``benchmarks/results/h100_alignment.jsonl``); single ones are at 0.25 to 0.56, and at 0.13 to
0.32 for 2 bytes."""

CHANNEL_BYTES_PER_S = {True: 5.5e9, False: 13e9}
"""Bytes/s of batch normalization for each channel whose elements lie together: of PyTorch's own kernel, and
of cuDNN's. Each channel is a block of its own, so few of them leave multiprocessors idle. Measured on an H100
with 64 to 256 channels (``benchmarks/results/h100_batch_norm.jsonl``)."""

CUDNN_BACKWARD = 3.3
"""Seconds of cuDNN's attention backward over forward's: 2.9 to 4.0 on an H100, 3.5 in a Llama's layers."""


@dataclass(frozen=True, slots=True)
class OperatorPrices:
    """The seconds of operators on a GPU, each of kernels of its own.

    ``efficiency``, ``attention_efficiency`` and ``rates`` are those of
    `ringside.sim.compute.prices.prices_on`.
    """

    gpu: Device
    efficiency: float | None = None
    attention_efficiency: float | None = None
    rates: Rates | None = None
    _known: dict[Operator, float] = field(init=False, repr=False, compare=False, default_factory=dict)
    _prices: dict[str, Prices] = field(init=False, repr=False, compare=False, default_factory=dict)

    def seconds(self, operator: Operator) -> float:
        """Return the seconds of an operator."""
        if operator not in self._known:
            self._known[operator] = self._seconds(operator)
        return self._known[operator]

    def _seconds(self, operator: Operator) -> float:
        launched = kernels(operator)
        if not launched:
            return 0.0
        precision = self.precision(operator)
        if isinstance(launched[0], Convolution) and dict(operator.options).get("allow_tf32", True):
            precision = convolves_in(precision, self.gpu)  # cuDNN's default
        return sum(self._kernel_s(one, precision) for one in launched)

    def precision(self, operator: Operator) -> str:
        """Return the precision in which an operator's products are computed."""
        name = PRECISIONS.get(operator.inputs[0].dtype if operator.inputs else "", "float32")
        options = dict(operator.options)
        tf32 = name == "float32" and options.get("allow_tf32") and "tfloat32" in self.gpu.flops_per_s
        return "tfloat32" if tf32 else name

    def _kernel_s(self, kernel: OperatorKernel, precision: str) -> float:
        match kernel:
            case HostCopy():
                return kernel.nbytes / (slot_of(self.gpu.name) or pcie(0, 16))
            case Convolution():
                return self._convolution_s(kernel, precision)
            case Normalization():
                limit = kernel.channels * CHANNEL_BYTES_PER_S[kernel.is_native]
                return kernel.nbytes / min(limit, self.gpu.streaming) + 2 * LAUNCH_S
            case Unaligned():
                share = UNALIGNED.get(kernel.alignment, 1.0) if precision != "float32" else 1.0
                return self._of(precision).seconds(kernel.product) / share
        return self._of(precision).seconds(kernel)

    def _convolution_s(self, kernel: Convolution, precision: str) -> float:
        """Return the seconds of a convolution, with those of transposing images for tensor cores."""
        rates = rates_of(self.gpu, precision, self.efficiency)
        computed = max(kernel.flops / rates.flops_per_s, kernel.nbytes / rates.bytes_per_s)
        transposes = precision != "float32" and kernel.transposed
        return computed + (2 * kernel.nbytes / rates.bytes_per_s if transposes else 0.0)

    def _of(self, precision: str) -> Prices:
        if precision not in self._prices:
            prices = prices_on(
                self.gpu, precision, efficiency=self.efficiency,
                attention_efficiency=self.attention_efficiency, rates=self.rates,
            )  # fmt: skip
            if self.gpu.capability in ASYNCHRONOUS:  # where PyTorch prefers cuDNN's attention to flash
                own = None if self.rates else torch_rates(self.gpu.name)
                flash = own.attention if own and prices.flash else prices.flash
                prices = replace(prices, flash=flash, flash_2=None, backward=CUDNN_BACKWARD)
            self._prices[precision] = prices
        return self._prices[precision]
