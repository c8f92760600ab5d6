"""The trained model: from a table, a module of the user's own, or a file of timed layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ringside.sim.questions.question import Question, choices, option
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.record import workload_of
from ringside.sim.training.ddp.scaling import DataParallelTraining
from ringside.sim.training.memory import OPTIMIZERS
from ringside.sim.training.tensor.decoder import ATTENTION, ModelOnGpu, decoder_on_gpu
from ringside.sim.workload.decoder import DECODERS, Decoder
from ringside.sim.workload.devices import DEVICES, Device
from ringside.sim.workload.workload import TimedModel, rebatched
from ringside.topologies.names import one_of
from ringside.validation.questions.model import find_model, is_timed, measured_rate, with_tokens


@dataclass(frozen=True, kw_only=True)
class Training(Question):
    """The trained model, and its numerics.

    ``seq`` becomes part of ``model``. ``batch`` is of one rank and one pass, None for the model's own.
    ``precision``, ``dtype`` and ``compute_efficiency`` are `ringside.sim.workload.architecture.workload`'s.
    ``measured`` is a throughput (samples/s of all ranks) and its number of ranks, which set the pace of
    compute. ``spread`` and ``contention`` are `ringside.sim.training.ddp.job.Costs`': by default `SPREAD` of
    `ringside.sim.training.ddp.scaling`, or none for timed layers, and `contention` of that module.
    """

    model: str = option(
        "resnet50, gpt2-xl:512,layers=9, your FILE.py:NAME, or a workload's YAML.", metavar="NAME[:SIZE]|FILE"
    )
    seq: int | None = option(
        "Tokens of a sample, the same as NAME:SIZE.", default=None, default_text="the model's own"
    )
    batch: int | None = option("Samples per rank and pass.", default=None, default_text="32 or the file's")
    device: str | None = option(
        f"One of {', '.join(DEVICES)}.", metavar="GPU", default=None, default_text="the cluster's"
    )
    precision: str | None = option(
        "Type in which products are computed: bf16, ...", default=None, default_text="as the model usually is"
    )
    dtype: str | None = option(
        "Type of parameters and gradients.", default=None, default_text="the model's own"
    )
    compute_efficiency: float | None = option(
        "Share of the GPU's peak that products reach.", default=None, default_text="its usual one"
    )
    attention: str = option(
        "Kernels of attention: fused, without masked scores, or unfused.",
        metavar=choices(ATTENTION), default="fused",
    )  # fmt: skip
    attention_efficiency: float | None = option(
        "Share of its peak in attention proper.", default=None, default_text="that of products"
    )
    measured: tuple[float, int] | str | None = option(
        "Measured throughput: 2616img/s@1, 116000tok/s@16", metavar="RATE@RANKS", default=None
    )
    optimizer: str = option(
        "Optimizer whose state is kept and updated.", metavar=choices(OPTIMIZERS), default="adam"
    )
    spread: float | None = option(
        "Spread of the ranks' speed; all wait for the slowest.", default=None, default_text="0.015 on GPUs"
    )
    contention: float | None = option(
        "Share of compute that a running collective takes.", default=None, default_text="channels / SMs"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seq is not None:
            object.__setattr__(self, "model", with_tokens(self.model, self.seq))
            object.__setattr__(self, "seq", None)
        if isinstance(self.measured, str):
            object.__setattr__(self, "measured", measured_rate(self.measured, self.model))

    @property
    def throughput(self) -> tuple[float, int] | None:
        """The measured samples/s, and the number of ranks."""
        assert not isinstance(self.measured, str)
        return self.measured

    @property
    def ddp(self) -> DataParallel:
        """The arguments of DistributedDataParallel, here its defaults."""
        return DataParallel()

    @property
    def slowdown(self) -> Mapping[int, float]:
        """The factor by which a rank takes longer, here none."""
        return {}

    def model_on(self, gpu: Device) -> ModelOnGpu:
        """Return the model as the GPU computes it."""
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"a batch of {self.batch}; write 1 or more samples")
        if self.attention not in ATTENTION:
            known = one_of(ATTENTION, self.attention)
            raise ValueError(f"unknown attention kernel {self.attention!r}; write {known}")
        if is_timed(self.model):
            return self._timed(Path(self.model))
        model, efficiency = find_model(self.model), self.efficiency_on(gpu)
        if isinstance(model, Decoder):
            return decoder_on_gpu(
                model, gpu, batch=self.batch, precision=self.precision, dtype=self.dtype,
                efficiency=efficiency, attention=self.attention,
                attention_efficiency=self.attention_efficiency,
            )  # fmt: skip
        if self.attention != "fused" or self.attention_efficiency is not None:
            raise ValueError(
                f"`attention` and `attention_efficiency` apply to decoders, and {self.model} is none; "
                "leave them out"
            )
        return model.on(gpu, self.batch, self.precision, self.dtype, efficiency)

    def _timed(self, path: Path) -> TimedModel:
        if self.precision or self.dtype or self.compute_efficiency:
            raise ValueError(
                f"{path} already has times and types; leave `precision`, `dtype` and `compute_efficiency` out"
            )
        whole = workload_of(path)
        if not whole.totals.forward_s + whole.totals.backward_s:
            raise ValueError(
                f"{path}: no layer takes any time; write a forward or a backward, for example 5ms"
            )
        return TimedModel(rebatched(whole, self.batch or whole.batch))

    def efficiency_on(self, gpu: Device) -> float:
        """Return the share of the GPU's peak that the model's products reach, by default the usual one."""
        if self.compute_efficiency is not None:
            return self.compute_efficiency
        is_decoder = self.model.partition(":")[0] in DECODERS
        return (gpu.wide_efficiency if is_decoder else None) or gpu.compute_efficiency

    def on(self, gpu: Device, model: ModelOnGpu) -> DataParallelTraining:
        """Return the training on such GPUs, which compute the model at their own pace."""
        return DataParallelTraining(
            gpu=gpu, model=model, ddp=self.ddp, optimizer=self.optimizer,
            spread=self.spread, contention=self.contention, slowdown=self.slowdown,
        )  # fmt: skip
