"""What ``ringside train`` trains: from a table, a module of the user's own, or a file of timed layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from real.ddp.job import is_model
from sim.libraries.find import as_nccl
from sim.libraries.library import Library
from sim.training.ddp.job import Costs, DataParallel
from sim.training.ddp.record import workload_of
from sim.training.groups import process_group
from sim.training.memory import find_optimizer
from sim.training.pace import at_pace, pace
from sim.workload.architecture import Architecture, usual_precision
from sim.workload.architecture import workload as roofline
from sim.workload.devices import Device, full_name
from sim.workload.models import architecture
from sim.workload.workload import Workload, rebatched

SPREAD = 0.02
"""By how much GPUs of one kind differ in speed: what published trainings show, where the rest of a loss is
explained (`validation.published.throughput`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained, and how: the words of the command line.

    ``batch`` is of one rank and one pass, None for the model's own. ``precision``, ``dtype`` and
    ``compute_efficiency`` are `sim.workload.architecture.workload`'s. ``measured`` is a throughput
    (samples/s of all ranks) and on how many ranks it was measured, which sets the pace of compute.
    ``slowdown``, ``spread`` and ``contention`` are `sim.training.ddp.job.Costs`'. Without a spread it is
    `SPREAD`, or none where layers are timed; without a contention NCCL's channels, a block each, over the
    GPU's multiprocessors.
    """

    model: str
    batch: int | None = None
    device: str | None = None
    precision: str | None = None
    dtype: str | None = None
    compute_efficiency: float | None = None
    measured: tuple[float, int] | None = None
    optimizer: str = "adam"
    ddp: DataParallel = field(default_factory=DataParallel)
    slowdown: Mapping[int, float] = field(default_factory=dict)
    spread: float | None = None
    contention: float | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """A training on a device: ``sized`` is the workload of a rank's batch, None for the one asked for.

    ``precision`` is what products are computed in, None where layers are timed. ``costs_on`` are the
    overheads on the ranks of a library.
    """

    sized: Callable[[int | None], Workload]
    precision: str | None
    costs_on: Callable[[Library], Costs]


def trained(training: Training, gpu: Device, library: Callable[[int], Library]) -> Trained:
    """What is trained, at its pace; ``library`` binds the ranks on which a throughput was measured."""
    sized, precision = _sized(training, gpu)
    work = sized(None)
    usual_spread = 0.0 if precision is None else SPREAD
    costs = Costs(
        memory_bandwidth=gpu.streaming, slowdown=training.slowdown,
        spread=usual_spread if training.spread is None else training.spread,
        optimizer_s=find_optimizer(training.optimizer).time_s(work, gpu.streaming),
    )  # fmt: skip

    def costs_on(found: Library) -> Costs:
        usual = contention(found, gpu) if training.contention is None else training.contention
        return replace(costs, contention=usual)

    if training.measured is not None:
        samples_per_s, ranks = training.measured
        found = library(ranks)
        group, alike = process_group(found), replace(costs_on(found), slowdown={})
        factor = pace(work, group, samples_per_s, training.ddp, alike)
        return Trained(lambda batch: at_pace(sized(batch), factor), precision, costs_on)
    return Trained(sized, precision, costs_on)


def contention(library: Library, gpu: Device) -> float:
    """Share of a GPU that NCCL's blocks take, one a channel, which no other library runs on it."""
    found = as_nccl(library)
    return min(found.comm.channels / gpu.multiprocessors, 0.5) if found and found.comm else 0.0


def _sized(training: Training, gpu: Device) -> tuple[Callable[[int | None], Workload], str | None]:
    if training.batch is not None and training.batch < 1:
        raise ValueError(f"a batch of {training.batch}; write 1 or more samples")
    path = Path(training.model)
    if is_timed(training.model):
        if training.precision or training.dtype or training.compute_efficiency:
            raise ValueError(
                f"{path} is timed and typed already; leave --precision, --dtype and --compute-efficiency out"
            )
        whole = workload_of(path)
        asked = rebatched(whole, training.batch or whole.batch)
        return lambda batch: rebatched(asked, batch or asked.batch), None
    model = _architecture(training.model)
    usual = training.batch or model.batch
    precision = full_name(training.precision) or usual_precision(model, gpu)
    words = precision, full_name(training.dtype), training.compute_efficiency
    return lambda batch: roofline(model, gpu, batch or usual, *words), precision


def is_timed(model: str) -> bool:
    """Whether the model is a file that says how long its layers take."""
    path = Path(model)
    return not is_model(model) and (path.suffix in (".yaml", ".yml") or path.is_file())


def _architecture(text: str) -> Architecture:
    if not is_model(text):
        return architecture(text)
    from real.model.architecture import architecture_of

    return architecture_of(text)
