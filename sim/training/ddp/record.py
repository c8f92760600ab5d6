"""Measured steps of DistributedDataParallel as a file, with all that a prediction of them needs."""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median, median_low
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

from ringside.sim.parameters import check_within
from ringside.sim.record import DDP_SCHEMA, RecordError, is_ddp_record, read_steps
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.step import TrainingStep
from ringside.sim.workload import file as workload_file
from ringside.sim.workload.workload import Workload
from ringside.topologies.units import MAX_DURATION, MIN_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNetwork:
    """What carries gradients: a topology as YAML text, with figures that were measured beside the steps.

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
    """Steps of one job, and what ran them.

    ``workload`` holds the compute of the same run without communication, ``memory_bandwidth`` (bytes/s)
    is what a division of a bucket in place reached, None where layers sleep and copies are hidden in
    that. ``workers`` are those of `ringside.sim.training.ddp.job`. ``contention`` is the share of its pace
    that compute was seen to lose beside a collective, ``crowding`` what a collective lost beside compute.
    ``hook_s`` are `ringside.sim.training.ddp.job.Costs`'.
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
        """The step of median length, whole, as it happened."""
        middle = median_low(step.step_s for step in self.steps)
        return next(step for step in self.steps if step.step_s == middle)

    def jitter(self) -> tuple[float, ...]:
        """By what factors the ranks' passes differ from step to step: each over the median of its rank's.

        A pass is forward and backward, as they went beside collectives.
        """
        found: list[float] = []
        for rank in range(len(self.steps[0].paces)):
            own = [
                step.paces[rank].total("forward") + step.paces[rank].total("backward") for step in self.steps
            ]
            found += [seconds / median(own) for seconds in own]
        return tuple(found)

    def dumps(self) -> str:
        """The record as JSON text."""
        content = _ADAPTER.dump_python(self, mode="json")
        return json.dumps({"schema": DDP_SCHEMA, **content}) + "\n"


_ADAPTER = TypeAdapter(DdpRecord)


def workload_of(path: Path) -> Workload:
    """The workload in a YAML file, or that of measured steps."""
    return read(path).workload if is_ddp_record(path) else workload_file.read(path)


def read(path: Path) -> DdpRecord:
    """The record in the file; raise `ringside.sim.record.RecordError` with all that is wrong with it."""
    record = read_steps(path, DDP_SCHEMA, _ADAPTER, "ringside measure ddp")
    if not record.steps:
        raise RecordError(f"{path}: holds no steps; make one with ringside measure ddp")
    if not all(0 < step.step_s <= MAX_DURATION for step in record.steps):
        raise RecordError(f"{path}: holds a step that takes no time; make one with ringside measure ddp")
    return record
