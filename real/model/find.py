"""What ``ringside train`` trains: from a table, a module of the user's own, or a file of timed layers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from real.ddp.job import is_model
from sim.training.ddp.job import DataParallel
from sim.training.ddp.record import workload_of
from sim.workload.architecture import Architecture
from sim.workload.architecture import workload as roofline
from sim.workload.devices import Device
from sim.workload.models import architecture
from sim.workload.workload import Workload, rebatched


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained, and how: the words of the command line.

    ``batch`` is of one rank and one pass, None for the model's own. ``slowdown`` are
    ``RANK=FACTOR`` texts; ``contention`` is `sim.training.ddp.job.Costs`'.
    """

    model: str
    batch: int | None
    device: str | None
    precision: str | None
    dtype: str | None
    optimizer: str
    ddp: DataParallel
    slowdown: tuple[str, ...] = ()
    contention: float = 0.0


def sized_workload(training: Training, gpu: Device) -> Callable[[int | None], Workload]:
    """The workload as a function of a rank's batch; None is the batch that was asked for."""
    if training.batch is not None and training.batch < 1:
        raise ValueError(f"a batch of {training.batch}; write 1 or more samples")
    path = Path(training.model)
    if is_timed(training.model):
        if training.precision or training.dtype:
            raise ValueError(f"{path} is timed and typed already; leave --precision and --dtype out")
        whole = workload_of(path)
        asked = rebatched(whole, training.batch or whole.batch)
        return lambda batch: rebatched(asked, batch or asked.batch)
    model = _architecture(training.model)
    return lambda batch: roofline(
        model, gpu, batch or training.batch or model.batch, training.precision or "float32", training.dtype
    )


def is_timed(model: str) -> bool:
    """Whether the model is a file that says how long its layers take."""
    path = Path(model)
    return not is_model(model) and (path.suffix in (".yaml", ".yml") or path.is_file())


def _architecture(text: str) -> Architecture:
    if not is_model(text):
        return architecture(text)
    from real.model.architecture import architecture_of

    return architecture_of(text)
