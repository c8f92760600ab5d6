"""What is trained: from a table, a module of the user's own, or a file of timed layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringside.real.ddp.job import is_model
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.record import workload_of
from ringside.sim.training.parallel.decoder import decoder_workload
from ringside.sim.training.tensor import Numerics
from ringside.sim.workload.architecture import Architecture, products_s, usual_precision
from ringside.sim.workload.architecture import workload as roofline
from ringside.sim.workload.decoder import DECODERS, Decoder
from ringside.sim.workload.devices import Device, full_name, stored
from ringside.sim.workload.models import find_model as named_model
from ringside.sim.workload.workload import Workload, rebatched
from ringside.topologies.words import one_of

BATCH = 32
"""Samples of a pass of a decoder where nobody says."""

ATTENTION = ("fused", "causal", "written")
"""Kernels of a decoder's attention: scores stay in the GPU's caches, those that are masked are left out too,
or all are written to memory and read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained, and how: the words of the command line.

    ``batch`` is of one rank and one pass, None for the model's own. ``precision``, ``dtype`` and
    ``compute_efficiency`` are `ringside.sim.workload.architecture.workload`'s. ``measured`` is a throughput
    (samples/s of all ranks) and on how many ranks it was measured, which sets the pace of compute.
    ``attention`` is one of `ATTENTION`, and ``attention_efficiency`` the share of the GPU's peak that it
    reaches, that of other products where None. ``slowdown``, ``spread`` and ``contention`` are
    `ringside.sim.training.ddp.job.Costs`'. Without a spread it is `ringside.sim.training.ddp.usual.SPREAD`,
    or none where layers are timed; without a contention that of `ringside.sim.training.ddp.usual.contention`.
    """

    model: str
    batch: int | None = None
    device: str | None = None
    precision: str | None = None
    dtype: str | None = None
    compute_efficiency: float | None = None
    attention: str = "fused"
    attention_efficiency: float | None = None
    measured: tuple[float, int] | None = None
    optimizer: str = "adam"
    ddp: DataParallel = field(default_factory=DataParallel)
    slowdown: Mapping[int, float] = field(default_factory=dict)
    spread: float | None = None
    contention: float | None = None


def sized_workload(training: Training, gpu: Device) -> tuple[Callable[[int | None], Workload], str | None]:
    """The workload as a function of a rank's batch, and what products are computed in.

    None is the batch that was asked for, and the precision where layers are timed.
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
                f"{path} is timed and typed already; leave --precision, --dtype and --compute-efficiency out"
            )
        whole = workload_of(path)
        if not whole.forward_s + whole.backward_s:
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
            f"--attention and --attention-efficiency are of decoders, and {training.model} is none; leave "
            "them out"
        )
    usual = training.batch or model.batch
    precision = usual_precision(model, gpu) if precision is None else precision
    return lambda batch: roofline(model, gpu, batch or usual, precision, dtype, share), precision


def numerics(training: Training, gpu: Device, precision: str) -> Numerics:
    """How a decoder's attention is computed."""
    share = training.attention_efficiency
    if share is not None:
        gpu.check_efficiency("an attention", share)
    return Numerics(
        fused=training.attention != "written", causal=training.attention == "causal",
        attention=None if share is None else gpu.roofline(precision, share),
    )  # fmt: skip


def batch_of(training: Training, gpu: Device) -> int:
    """The samples of one rank and pass, or of a replica's step under a layout."""
    return sized_workload(training, gpu)[0](None).batch if training.batch is None else training.batch


def peak_s(training: Training, gpu: Device, precision: str) -> float:
    """Seconds of a sample's products, forward and backward, at the GPU's peak: nothing trains quicker."""
    model = find_model(training.model)
    if isinstance(model, Decoder):
        return model.training_flops() / gpu.peak(precision)
    return products_s(model, gpu, precision)


def reached(training: Training, gpu: Device) -> float:
    """The share of the GPU's peak that the model's products reach: what was asked for, else what is usual."""
    if training.compute_efficiency is not None:
        return training.compute_efficiency
    is_decoder = training.model.partition(":")[0] in DECODERS
    return (gpu.wide_efficiency if is_decoder else None) or gpu.compute_efficiency


def is_timed(model: str) -> bool:
    """Whether the model is a file that says how long its layers take."""
    path = Path(model)
    return not is_model(model) and (path.suffix in (".yaml", ".yml") or path.is_file())


def find_model(text: str) -> Architecture | Decoder:
    """The model of a table or of a file's module."""
    if not is_model(text):
        return named_model(text)
    from ringside.real.model.architecture import architecture_of

    return architecture_of(text)
