"""Measured steps of DistributedDataParallel as a file, with every input of their prediction."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median, median_low
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

from ringside.sim.parameters import check_within
from ringside.sim.record import DDP_SCHEMA, RecordError, read_steps, schema_of
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.workload import file as workload_file
from ringside.sim.workload.workload import Workload
from ringside.topologies.units import MAX_DURATION, MIN_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNetwork:
    """The network that carries gradients: topology as YAML text, and figures measured beside the steps.

    ``library`` and ``algorithm`` are `ringside.sim.predict`'s; ``gamma`` and ``launch_s`` are
    `ringside.sim.parameters.Parameters`'.
    """

    topology: str
    library: str
    algorithm: str = "auto"
    gamma: float = 0.0
    launch_s: float = 0.0

    def __post_init__(self) -> None:
        check_within("gamma", self.gamma, 1 / MIN_RATE)
        check_within("launch_s", self.launch_s, MAX_DURATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpRecord:
    """Steps of one job, with their setup.

    ``workload`` holds the compute of the same run without communication, ``memory_bandwidth`` (bytes/s) is
    the measured rate of dividing a bucket in place, None if layers sleep, which hides copies. ``workers`` are
    those of `ringside.sim.training.ddp.job`. ``contention`` is the measured share of its pace that compute
    loses beside a collective, ``crowding`` the share that a collective loses beside compute. ``hook_s`` are
    `ringside.sim.training.ddp.job.Costs`'.
    """

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    workload: Workload
    ranks: int
    ddp: DataParallel
    workers: int
    wires: MeasuredNetwork
    memory_bandwidth: float | None
    steps: tuple[TrainingStep, ...]
    fingerprint: dict[str, str]
    contention: float = 0.0
    crowding: float = 0.0
    hook_s: tuple[tuple[float, ...], ...] = ()

    @property
    def median(self) -> TrainingStep:
        """The measured step of median length."""
        middle = median_low(step.step_s for step in self.steps)
        return next(step for step in self.steps if step.step_s == middle)

    def jitter(self) -> tuple[float, ...]:
        """Factors by which ranks' passes vary from step to step: each pass over the median of its rank's.

        A pass is forward and backward, as measured beside collectives.
        """
        factors: list[float] = []
        for rank in range(len(self.steps[0].paces)):
            own = [
                step.paces[rank].total("forward") + step.paces[rank].total("backward") for step in self.steps
            ]
            factors += [seconds / median(own) for seconds in own]
        return tuple(factors)

    def dumps(self) -> str:
        """Return the record as JSON text."""
        content = _ADAPTER.dump_python(self, mode="json")
        return json.dumps({"schema": DDP_SCHEMA, **content}) + "\n"


_ADAPTER = TypeAdapter(DdpRecord)


def workload_of(path: Path) -> Workload:
    """Return the workload in a YAML file, or that of measured steps."""
    return read(path).workload if schema_of(path) == DDP_SCHEMA else workload_file.read(path)


def read(path: Path) -> DdpRecord:
    """Return the record in the file; raise `ringside.sim.record.RecordError` with every error in it."""
    record = read_steps(path, DDP_SCHEMA, _ADAPTER, "ringside measure ddp")
    if not record.steps:
        raise RecordError(f"{path}: contains no steps; make one with ringside measure ddp")
    if not all(0 < step.step_s <= MAX_DURATION for step in record.steps):
        raise RecordError(f"{path}: contains a step without duration; make one with ringside measure ddp")
    return record
