"""The trained model: from a table, a module of the user's own, or a file of timed layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ringside.sim.libraries.library import Library
from ringside.sim.questions.question import Question, choices, option
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.record import workload_of
from ringside.sim.training.ddp.scaling import DataParallelTraining
from ringside.sim.training.memory import OPTIMIZERS
from ringside.sim.training.tensor.decoder import decoder_workload
from ringside.sim.training.tensor.layers import Numerics
from ringside.sim.workload.architecture import products_s, usual_precision
from ringside.sim.workload.architecture import workload as roofline
from ringside.sim.workload.decoder import DECODERS, Decoder
from ringside.sim.workload.devices import DEVICES, Device, full_name, stored
from ringside.sim.workload.workload import Workload, rebatched
from ringside.topologies.names import one_of
from ringside.validation.questions.model import find_model, is_timed, measured_rate, with_tokens

BATCH = 32
"""Default samples per pass of a decoder."""

ATTENTION = ("fused", "causal", "written")
"""Kernels of attention: scores stay in caches, masked ones are skipped too, or all are written to memory."""


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


def sized_workload(training: Training, gpu: Device) -> tuple[Callable[[int | None], Workload], str | None]:
    """Return the workload as a function of a rank's batch, and the precision of its products.

    A batch of None is the requested one; the precision is None for timed layers.
    """
    if training.batch is not None and training.batch < 1:
        raise ValueError(f"a batch of {training.batch}; write 1 or more samples")
    path = Path(training.model)
    if training.attention not in ATTENTION:
        known = one_of(ATTENTION, training.attention)
        raise ValueError(f"unknown attention kernel {training.attention!r}; write {known}")
    if is_timed(training.model):
        if training.precision or training.dtype or training.compute_efficiency:
            raise ValueError(
                f"{path} already has times and types; leave `precision`, `dtype` and `compute_efficiency` out"
            )
        whole = workload_of(path)
        if not whole.totals.forward_s + whole.totals.backward_s:
            raise ValueError(
                f"{path}: no layer takes any time; write a forward or a backward, for example 5ms"
            )
        asked = rebatched(whole, training.batch or whole.batch)
        return lambda batch: rebatched(asked, batch or asked.batch), None
    model, dtype, share = find_model(training.model), stored(training.dtype), reached(training, gpu)
    precision = full_name(training.precision)
    if isinstance(model, Decoder):
        precision = gpu.mixed if precision is None else precision
        pace, usual = gpu.roofline(precision, share), training.batch or BATCH
        how, dtype = numerics(training, gpu, precision), dtype or "float32"
        return lambda batch: decoder_workload(model, pace, batch or usual, dtype, how), precision
    if training.attention != "fused" or training.attention_efficiency is not None:
        raise ValueError(
            f"`attention` and `attention_efficiency` apply to decoders, and {training.model} is none; "
            "leave them out"
        )
    usual = training.batch or model.batch
    precision = usual_precision(model, gpu) if precision is None else precision
    return lambda batch: roofline(model, gpu, batch or usual, precision, dtype, share), precision


def numerics(training: Training, gpu: Device, precision: str) -> Numerics:
    """Return the numerics of a decoder's attention."""
    share = training.attention_efficiency
    if share is not None:
        gpu.check_efficiency("an attention", share)
    return Numerics(
        fused=training.attention != "written", causal=training.attention == "causal",
        attention=None if share is None else gpu.roofline(precision, share),
    )  # fmt: skip


def batch_of(training: Training, gpu: Device) -> int:
    """Return the samples of one rank and pass, or of a replica's step under a layout."""
    return sized_workload(training, gpu)[0](None).batch if training.batch is None else training.batch


def peak_s(training: Training, gpu: Device, precision: str) -> float:
    """Seconds of a sample's products, forward and backward, at the GPU's peak, a lower bound."""
    model = find_model(training.model)
    if isinstance(model, Decoder):
        return model.training_flops() / gpu.peak(precision)
    return products_s(model, gpu, precision)


def reached(training: Training, gpu: Device) -> float:
    """Return the share of the GPU's peak that the model's products reach, by default the usual one."""
    if training.compute_efficiency is not None:
        return training.compute_efficiency
    is_decoder = training.model.partition(":")[0] in DECODERS
    return (gpu.wide_efficiency if is_decoder else None) or gpu.compute_efficiency


def data_parallel_training(
    training: Training, gpu: Device, library: Callable[[int], Library]
) -> DataParallelTraining:
    """Return the training under DistributedDataParallel alone, at its pace.

    ``library`` binds the ranks of a measured throughput.
    """
    sized, precision = sized_workload(training, gpu)
    own = DataParallelTraining(
        gpu=gpu, workload_of=sized, precision=precision, ddp=training.ddp, optimizer=training.optimizer,
        spread=training.spread, contention=training.contention, slowdown=training.slowdown,
    )  # fmt: skip
    if training.throughput is None:
        return own
    from ringside.validation.pace import data_parallel_pace

    samples_per_s, ranks = training.throughput
    if precision is not None:
        share = samples_per_s / ranks * peak_s(training, gpu, precision)
        if share > 1:
            raise ValueError(beyond_peak(training.throughput, share, gpu, precision))
    return replace(own, pace=data_parallel_pace(own, library(ranks), samples_per_s))


def beyond_peak(measured: tuple[float, int], share: float, gpu: Device, precision: str) -> str:
    """Return the error for a throughput that is ``share`` times the GPUs' peak."""
    samples_per_s, ranks = measured
    return (
        f"{samples_per_s:g} samples/s on {_counted(ranks)} is {share:.3g} times the peak of {gpu.name} "
        f"in {precision}; write a measured throughput, or another `precision` or `device`"
    )


def computing(training: Training, gpu: Device, precision: str | None) -> str:
    """Return the source of compute times."""
    if precision is None:
        text = f"layers as timed in {training.model}, optimizer and copies on {gpu.name}"
    else:
        types = training.dtype or "of the model's own types"
        share = "" if training.throughput else f" at {reached(training, gpu):.0%} of its peak"
        text = f"{precision} on {gpu.name}{share}, gradients {types}"
    if training.throughput:
        samples_per_s, ranks = training.throughput
        text += f", at the pace of {samples_per_s:g} samples/s measured on {_counted(ranks)}"
    return text


def _counted(ranks: int) -> str:
    return f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"
