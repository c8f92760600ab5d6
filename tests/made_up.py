"""Made-up measurements and calibrations, whose unimportant fields have defaults."""

from dataclasses import replace
from typing import Any

from ringside.sim.calibration import Calibration, Fit
from ringside.sim.parameters import Parameters
from ringside.sim.record import Record
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.step import DdpRecord, MeasuredNetwork, TrainingStep
from ringside.sim.workload.workload import Workload
from ringside.topologies import star
from ringside.topologies.file import dumps
from ringside.validation.emulated.collectives import MeasuredCase

RECORD = Record(
    source="made",
    cluster="c",
    library="ideal",
    collective="all_reduce",
    algorithm="ring",
    num_nodes=1,
    ranks=4,
    nbytes=1024,
    dtype="float32",
    time_s=1.0,
    statistic="median",
)

FIT = Fit(
    library="ideal",
    algorithm="ring",
    protocol="auto",
    parameters=Parameters(alpha=1e-5, beta=1e-9),
    interval={},
    fixed={},
    band=(0.9, 1.2),
    rows=9,
    median_error=0.0,
    p90_error=0.0,
    worst=(),
)

CELL = MeasuredCase(
    family="ring",
    collective="all_reduce",
    algorithm="ring",
    ranks=4,
    bandwidth=25e6,
    size_bytes=2**20,
    placement="natural",
    oversubscription=1.0,
    slowdown=1.0,
    measured_s=0.1,
    predicted_s=0.1,
    repeats=5,
    spread=0.01,
    latency_s=1e-4,
    efficiency=0.95,
)


def record(**changes: Any) -> Record:
    return replace(RECORD, **changes)


def calibration(*changes: dict[str, Any]) -> Calibration:
    """Return a calibration with a fit for each of some changes to the usual one."""
    fits = tuple(replace(FIT, **change) for change in changes)
    return Calibration(cluster="c", topology="star", date="", sources={}, fingerprint={}, fits=fits, used=())


def ddp_record(work: Workload, ranks: int, *steps: TrainingStep, way: str = "auto", **more: Any) -> DdpRecord:
    """Return measured steps of a workload on a star."""
    wires = MeasuredNetwork(topology=dumps(star(ranks)), library="ideal", algorithm=way)
    made = DdpRecord(
        workload=work,
        ranks=ranks,
        ddp=DataParallel(),
        workers=2,
        memory_bandwidth=None,
        wires=wires,
        steps=steps,
        fingerprint={},
    )
    return replace(made, **more)
