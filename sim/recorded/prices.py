"""What recorded operators cost on a GPU, each distinct one priced once."""

from dataclasses import dataclass, field

from ringside.sim.compute.grids import Rates
from ringside.sim.compute.prices import Prices, prices_on
from ringside.sim.compute.stacks import STACKS
from ringside.sim.recorded.job import Operator
from ringside.sim.recorded.kernels import Convolution, HostCopy, OperatorKernel, kernels
from ringside.sim.workload.architecture import convolves_in, rates_of
from ringside.sim.workload.devices import Device, Roofline
from ringside.topologies.hardware import pcie, slot_of

PRECISIONS = {
    **{name: name for name in ("bfloat16", "float16", "float32")},
    "float64": "float32",
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), "fp8"),
}
"""The precision of a product by the type of its inputs; others are computed as float32."""


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

    @property
    def overhead(self) -> float:
        """Training over the sum of its kernels, as fitted for eager software; 1 with an efficiency."""
        return STACKS["eager"].overhead if self.efficiency is None else 1.0

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
        return self.overhead * sum(self._kernel_s(one, precision) for one in launched)

    def precision(self, operator: Operator) -> str:
        """Return the precision in which an operator's products are computed."""
        name = PRECISIONS.get(operator.inputs[0].dtype if operator.inputs else "", "float32")
        options = dict(operator.options)
        tf32 = name == "float32" and options.get("allow_tf32") and "tfloat32" in self.gpu.flops_per_s
        return "tfloat32" if tf32 else name

    def _kernel_s(self, kernel: OperatorKernel, precision: str) -> float:
        if isinstance(kernel, HostCopy):
            return kernel.nbytes / (slot_of(self.gpu.name) or pcie(0, 16))
        if isinstance(kernel, Convolution):
            rates = self._convolution(precision)
            return max(kernel.flops / rates.flops_per_s, kernel.nbytes / rates.bytes_per_s)
        return self._of(precision).seconds(kernel)

    def _convolution(self, precision: str) -> Roofline:
        return rates_of(self.gpu, precision, self.efficiency)

    def _of(self, precision: str) -> Prices:
        if precision not in self._prices:
            self._prices[precision] = prices_on(
                self.gpu, precision, efficiency=self.efficiency,
                attention_efficiency=self.attention_efficiency, rates=self.rates,
            )  # fmt: skip
        return self._prices[precision]
